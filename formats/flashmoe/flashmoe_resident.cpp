#include "formats/flashmoe/flashmoe_resident.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/config/architecture.h"
#include "formats/pack/resident_files.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFirstChunkName = "model_weights_0.bin";  // of 003's loader

// ---- Entries ------------------------------------------------------------------------------------

// One entry of "tensors", as it stands there.
struct Entry {
  std::string key;  // in the file
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::vector<std::uint64_t> shape;
  DType dtype = DType::kU8;
};

Result<Entry> parse_entry(const JsonFields& tensors, const std::string& key) {
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, tensors.object(key));
  Entry entry{.key = key, .shape = {}};
  MOE_ASSIGN_OR_RETURN(entry.offset, fields.number("offset", 0, kMaxDataBytes));
  MOE_ASSIGN_OR_RETURN(entry.size, fields.number("size", 0, kMaxDataBytes));
  MOE_ASSIGN_OR_RETURN(const std::string dtype, fields.string("dtype"));
  const auto known = dtype_from_name(dtype);
  if (!known.has_value()) {
    return fields.error("dtype", "\"" + printable(dtype, 32) + "\" is no dtype of safetensors");
  }
  entry.dtype = *known;
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* shape, fields.array("shape"));
  if (shape->size() > kMaxTensorRank) return fields.error("shape", "has too many dimensions");
  std::optional<std::uint64_t> bits = dtype_bits(entry.dtype);
  for (const nlohmann::json& dimension : *shape) {
    if (!dimension.is_number_unsigned()) {
      return fields.error("shape", "must hold non-negative integers");
    }
    entry.shape.push_back(dimension.get<std::uint64_t>());
    if (bits.has_value()) bits = checked_mul(*bits, entry.shape.back());
  }
  if (!bits.has_value() || *bits % 8 != 0) return fields.error("shape", "is too large");
  MOE_RETURN_IF_ERROR(fields.expect_number("size", *bits / 8, "shape and dtype"));
  return entry;
}

// By name without "language_model.".
using Entries = std::map<std::string, Entry, std::less<>>;

Result<Entries> parse_entries(const JsonFields& root, const JsonFields& tensors) {
  constexpr std::string_view kWrapper = "language_model.";
  Entries entries;
  const nlohmann::json& node = *root.find("tensors");
  if (root.has("num_tensors")) {
    MOE_RETURN_IF_ERROR(root.expect_number("num_tensors", node.size(), "the list of tensors"));
  }
  for (const auto& [key, value] : node.items()) {
    MOE_ASSIGN_OR_RETURN(Entry entry, parse_entry(tensors, key));
    const std::string name = key.starts_with(kWrapper) ? key.substr(kWrapper.size()) : key;
    if (!entries.emplace(name, std::move(entry)).second) {
      return tensors.error(key, "stands twice, with and without language_model.");
    }
  }
  return entries;
}

// ---- Tensors ------------------------------------------------------------------------------------

class TensorReader {
 public:
  TensorReader(const JsonFields& tensors, const Entries& entries, const ModelConfig& config)
      : tensors_(tensors), entries_(entries), config_(config) {}

  // `name`: canonical, without suffix.
  Result<ResidentTensor> read(const std::string& name, const ResidentRule& rule,
                              const Entry& weight) const {
    ResidentTensor tensor;
    tensor.name = name;
    tensor.has_weight_suffix = rule.has_weight_suffix;
    tensor.offsets.codes() = weight.offset;
    tensor.shape = weight.shape;
    if (weight.shape.empty() || weight.size == 0) return error(weight, "is empty");
    if (weight.dtype == DType::kU32) {
      MOE_RETURN_IF_ERROR(read_affine(rule, weight, tensor));
    } else {
      const auto plain = plain_qformat(weight.dtype);
      if (!plain.has_value()) {
        return error(weight, "is of type " + std::string(dtype_name(weight.dtype)) +
                                 ", which is not read here");
      }
      tensor.format = {.id = *plain};
    }
    if (rule.role == ModuleRole::kDeltaConv) MOE_RETURN_IF_ERROR(check_conv1d(weight, tensor));
    tensor.cols = tensor.shape.back();
    tensor.rows = 1;
    for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) tensor.rows *= tensor.shape[i];
    const auto bytes = matrix_bytes(tensor.format, tensor.rows, tensor.cols);
    if (!bytes.has_value() || bytes->codes() != weight.size) {
      return error(weight, "has a shape that " + to_string(tensor.format) + " cannot hold");
    }
    tensor.bytes = *bytes;
    return tensor;
  }

 private:
  Status error(const Entry& entry, const std::string& what) const {
    return tensors_.error(entry.key, what);
  }

  Result<const Entry*> component(const std::string& name, const Entry& weight) const {
    const auto found = entries_.find(name);
    if (found != entries_.end()) return &found->second;
    return error(weight, "has codes, but " + printable(name) + " is missing");
  }

  // Width and group from the shapes and the module's inputs; the shape becomes the logical one.
  Status read_affine(const ResidentRule& rule, const Entry& weight, ResidentTensor& tensor) const {
    const bool may_be_codes = rule.rounding != Rounding::kNever;
    const std::uint64_t inputs = may_be_codes ? rule.shape(config_).back() : 0;
    if (inputs == 0 || weight.shape.size() != 2) {
      return error(weight, "holds codes where plain numbers or a matrix must stand");
    }
    MOE_ASSIGN_OR_RETURN(const Entry* scales, component(tensor.name + ".scales", weight));
    MOE_ASSIGN_OR_RETURN(const Entry* biases, component(tensor.name + ".biases", weight));
    const std::uint64_t words = weight.shape[1];
    const bool whole = words <= inputs && words * 32 % inputs == 0;
    const auto id =
        whole ? affine_qformat(static_cast<std::uint32_t>(words * 32 / inputs)) : std::nullopt;
    if (!id.has_value()) {
      return error(weight, "has rows of " + std::to_string(words) + " words, config.json gives " +
                               std::to_string(inputs) + " inputs: no width of codes fits");
    }
    const bool alike = scales->shape == biases->shape && scales->dtype == biases->dtype &&
                       scales->shape.size() == 2 && scales->shape[0] == weight.shape[0];
    const std::uint64_t groups = alike ? scales->shape[1] : 0;
    const std::uint64_t group = groups != 0 && inputs % groups == 0 ? inputs / groups : 0;
    if (group > 128 || !is_valid_group_size(static_cast<std::uint32_t>(group))) {
      return error(*scales, "and biases do not give groups of 32, 64 or 128 inputs");
    }
    if (scales->dtype != DType::kBf16 && scales->dtype != DType::kF16) {
      return error(*scales, "is of type " + std::string(dtype_name(scales->dtype)) +
                                ", scales must be BF16 or F16");
    }
    tensor.format = {
        .id = *id, .group_size = static_cast<std::uint32_t>(group), .scale_type = scales->dtype};
    tensor.shape.back() = inputs;
    tensor.offsets[Component::kScales] = scales->offset;
    tensor.offsets[Component::kBiases] = biases->offset;
    return Status::ok();
  }

  // [C, T] and [C, T, 1] are MLX's; the tensor gets the second.
  Status check_conv1d(const Entry& weight, ResidentTensor& tensor) const {
    if (tensor.shape.size() == 2) tensor.shape.push_back(1);
    if (tensor.shape.size() == 3 && tensor.shape[2] == 1 &&
        tensor.shape[1] == config_.linear_conv_taps) {
      return Status::ok();
    }
    return error(weight, "must have the shape [channels, " +
                             std::to_string(config_.linear_conv_taps) +
                             "] or with a 1 behind it, as MLX has");
  }

  const JsonFields& tensors_;
  const Entries& entries_;
  const ModelConfig& config_;
};

// The rule of the module that `name` (without suffix) names, nullptr for tensors of other parts of
// a model. kCorrupt: a layer that the model lacks; kUnsupported: something else inside a layer.
Result<const ResidentRule*> find_module(const JsonFields& tensors, const std::string& key,
                                        const std::string& name, const Architecture& architecture,
                                        const ModelConfig& config) {
  constexpr std::string_view kLayers = "model.layers.";
  const bool in_layer = name.starts_with(kLayers);
  std::string_view rest = name;
  if (in_layer) {
    const std::size_t dot = name.find('.', kLayers.size());
    const std::string number = name.substr(kLayers.size(), dot - kLayers.size());
    if (!parse_index(number, config.num_layers).has_value()) {
      return tensors.error(key, "belongs to no layer of config.json, which has " +
                                    std::to_string(config.num_layers));
    }
    rest = dot == std::string::npos ? std::string_view() : rest.substr(dot + 1);
  }
  for (const ResidentRule& rule : architecture.residents) {
    const bool is_top = rule.scope == LayerScope::kModel;
    if (is_top != in_layer && rule.name == rest && !rest.empty()) return &rule;
  }
  const ExpertNames& experts = *architecture.experts;
  const bool routed =
      rest.starts_with(experts.stacked) || rest.starts_with(experts.folder) || rest.empty();
  if (!in_layer || routed) return nullptr;
  return json_error(StatusCode::kUnsupported, tensors.file(), tensors.path_of(key),
                    "is not a tensor of this architecture that is known here",
                    "leaving it out could change the model's answers");
}

Status read_tensors(const JsonFields& tensors, const Entries& entries,
                    const Architecture& architecture, const ModelConfig& config,
                    ResidentManifest& manifest) {
  constexpr std::string_view kSuffix = ".weight";
  const TensorReader reader(tensors, entries, config);
  for (const auto& [full, entry] : entries) {
    if (full.ends_with(".scales") || full.ends_with(".biases")) continue;
    const bool suffixed = full.ends_with(kSuffix);
    const std::string name = suffixed ? full.substr(0, full.size() - kSuffix.size()) : full;
    MOE_ASSIGN_OR_RETURN(const ResidentRule* rule,
                         find_module(tensors, entry.key, name, architecture, config));
    if (rule == nullptr || rule->has_weight_suffix != suffixed) continue;
    MOE_ASSIGN_OR_RETURN(ResidentTensor tensor, reader.read(name, *rule, entry));
    manifest.tensors.push_back(std::move(tensor));
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const ResidentTensor& a, const ResidentTensor& b) { return a.name < b.name; });
  return Status::ok();
}

// Everything that a run will ask for.
Status check_complete(const JsonFields& tensors, const Architecture& architecture,
                      const ModelConfig& config, const ResidentManifest& manifest) {
  std::set<std::string, std::less<>> names;
  for (const ResidentTensor& tensor : manifest.tensors) names.insert(tensor.name);
  const auto check = [&](const std::string& name) -> Status {
    if (names.find(name) != names.end()) return Status::ok();
    return json_error(StatusCode::kNotFound, tensors.file(), tensors.path_of(name), "is missing",
                      "extract the weights of this checkpoint again");
  };
  for (const ResidentRule& rule : architecture.residents) {
    if (rule.scope != LayerScope::kModel) continue;
    if (rule.role == ModuleRole::kOutputHead && config.tie_word_embeddings) continue;
    MOE_RETURN_IF_ERROR(check(resident_module(rule, 0)));
  }
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const ResidentRule& rule : architecture.residents) {
      if (!applies_to_layer(rule, config, layer) || !exists_in(rule, config, layer)) continue;
      MOE_RETURN_IF_ERROR(check(resident_module(rule, layer)));
    }
  }
  return Status::ok();
}

// ---- Files --------------------------------------------------------------------------------------

// Where each chunk begins and what it is called; one chunk without a `split` block. Sizes are 0.
Result<std::vector<ResidentFile>> parse_split(const JsonFields& root) {
  constexpr std::uint64_t kMaxChunks = 1U << 16;
  if (!root.has("split")) return std::vector<ResidentFile>{{.name = kResidentDataName}};
  MOE_ASSIGN_OR_RETURN(const JsonFields split, root.object("split"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t count, split.number("num_chunks", 1, kMaxChunks));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* names, split.array("chunk_files"));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* begins, split.array("split_offsets"));
  if (names->size() != count) {
    return split.error("chunk_files", "must name " + std::to_string(count) + " files");
  }
  if (begins->size() != count && begins->size() != count + 1) {  // + 1: with the end of the last
    return split.error("split_offsets", "must hold " + std::to_string(count) + " offsets");
  }
  std::vector<ResidentFile> files;
  for (std::size_t i = 0; i < count; ++i) {
    const nlohmann::json& name = (*names)[i];
    const nlohmann::json& begin = (*begins)[i];
    if (!name.is_string() || !is_plain_file_name(name.get_ref<const std::string&>())) {
      return split.error("chunk_files[" + std::to_string(i) + "]", "is not a plain file name");
    }
    const bool ascending = begin.is_number_unsigned() &&
                           begin.get<std::uint64_t>() <= kMaxDataBytes &&
                           (i == 0 ? begin.get<std::uint64_t>() == 0
                                   : begin.get<std::uint64_t>() > files.back().begin);
    if (!ascending) {
      return split.error("split_offsets[" + std::to_string(i) + "]",
                         "must be an integer, 0 for the first chunk and ascending");
    }
    files.push_back({.name = name.get<std::string>(), .begin = begin.get<std::uint64_t>()});
  }
  return files;
}

// Sets each file's size to the end of its last tensor and checks that no tensor crosses files.
Status measure_files(const JsonFields& tensors, const Entries& entries,
                     std::vector<ResidentFile>& files) {
  std::vector<ResidentExtent> extents;
  for (const auto& [name, entry] : entries) {
    if (entry.size == 0) continue;
    extents.push_back({entry.offset, entry.size, entry.key});
    const auto after = std::upper_bound(
        files.begin(), files.end(), entry.offset,
        [](std::uint64_t offset, const ResidentFile& file) { return offset < file.begin; });
    ResidentFile& file = *(after - 1);  // the first begins at 0
    const std::uint64_t end = entry.offset - file.begin + entry.size;
    const bool crosses = after != files.end() && end > after->begin - file.begin;
    if (!crosses) file.size = std::max(file.size, end);
  }
  return check_resident_extents(tensors, extents, files);
}

}  // namespace

Result<ResidentManifest> parse_flashmoe_resident(std::string_view text, const std::string& file,
                                                 const ModelConfig& config) {
  const Architecture* architecture = find_architecture(config.model_type);
  if (architecture != nullptr && !architecture->runs_in_flashmoe) {
    return unsupported(
        Where{.file = file},
        "is of the flash-moe engines, which do not compute model type " + config.model_type,
        "convert the checkpoint with moepack convert");
  }
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  MOE_ASSIGN_OR_RETURN(const JsonFields tensors, root.object("tensors"));
  ResidentManifest manifest;
  manifest.has_checksum = false;
  manifest.conventions.conv1d = ResidentConventions::Conv1d::kCT1;
  MOE_ASSIGN_OR_RETURN(const Entries entries, parse_entries(root, tensors));
  MOE_ASSIGN_OR_RETURN(manifest.files, parse_split(root));
  MOE_RETURN_IF_ERROR(measure_files(tensors, entries, manifest.files));
  if (architecture == nullptr) {
    return unsupported(Where{.file = file},
                       "cannot be read without a config.json of a known model type beside it",
                       "known are " + supported_model_types());
  }
  MOE_RETURN_IF_ERROR(read_tensors(tensors, entries, *architecture, config, manifest));
  MOE_RETURN_IF_ERROR(check_complete(tensors, *architecture, config, manifest));
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const ResidentFile& chunk = manifest.files[i];
    if (chunk.size == 0) {
      return root.error("split", printable(chunk.name) + " would hold no tensor");
    }
    const std::uint64_t end = align_up(chunk.begin + chunk.size, kResidentAlignment);
    if (i + 1 < manifest.files.size() && manifest.files[i + 1].begin > end) {
      return root.error("split", "leaves a gap behind " + printable(chunk.name) +
                                     ", whose tensors end at byte " + std::to_string(end));
    }
  }
  manifest.data_size = manifest.files.back().begin + manifest.files.back().size;
  return manifest;
}

Result<ResidentManifest> read_flashmoe_resident(const fs::path& directory,
                                                const ModelConfig& config) {
  const fs::path path = directory / kResidentManifestName;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxManifestBytes));
  MOE_ASSIGN_OR_RETURN(ResidentManifest manifest,
                       parse_flashmoe_resident(text, path.string(), config));
  std::error_code ignored;
  ResidentFile& first = manifest.files.front();
  if (!fs::exists(directory / first.name, ignored) &&
      fs::exists(directory / kFirstChunkName, ignored)) {
    first.name = kFirstChunkName;
  }
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    ResidentFile& chunk = manifest.files[i];
    MOE_ASSIGN_OR_RETURN(const File data, File::open(directory / chunk.name));
    // Behind the last tensor there may be padding, up to the next chunk's first.
    std::uint64_t most = align_up(chunk.size, kResidentAlignment);
    if (i + 1 < manifest.files.size()) {
      most = std::min(most, manifest.files[i + 1].begin - chunk.begin);
    }
    if (data.size() < chunk.size || data.size() > most) {
      return corrupt(Where{.file = data.path()},
                     "is " + std::to_string(data.size()) + " bytes long, but the tensors of " +
                         kResidentManifestName + " end at byte " + std::to_string(chunk.size),
                     "the file is incomplete or belongs to another manifest");
    }
    chunk.size = data.size();
  }
  manifest.data_size = manifest.files.back().begin + manifest.files.back().size;
  return manifest;
}

Result<ResidentManifest> read_model_residents(const fs::path& directory,
                                              const ModelConfig& config) {
  const fs::path path = directory / kResidentManifestName;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxManifestBytes));
  if (text.find("\"format_version\"") != std::string::npos) {
    return read_resident_manifest(directory);
  }
  return read_flashmoe_resident(directory, config);
}

}  // namespace moepack
