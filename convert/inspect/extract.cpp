#include "convert/inspect/extract.h"

#include <algorithm>
#include <optional>

#include "convert/inspect/extract_gguf.h"
#include "convert/inspect/nearest_names.h"
#include "convert/pack/plan.h"
#include "convert/source/expert_name.h"
#include "convert/source/model_files.h"
#include "convert/source/path_kind.h"
#include "convert/source/stored_matrix.h"
#include "formats/base/bytes.h"
#include "formats/flashmoe/flashmoe_resident.h"
#include "formats/model_dir.h"
#include "formats/pack/prediction_manifest.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

constexpr std::uint64_t kCopyBlock = std::uint64_t{1} << 20;

// A tensor that was found: its stored bytes, and the matrix they are part of when it can be
// decoded.
struct Found {
  std::string name;
  FileRange range;
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;          // stored
  std::vector<std::uint64_t> logical_shape;  // decoded
  std::optional<StoredMatrix> matrix;
};

FileRange file_range(const TensorRef& tensor) {
  return {.file = &tensor.shard->file(), .offset = tensor.info->offset, .bytes = tensor.info->size};
}

StoredMatrix plain_matrix(QFormatId id, const FileRange& range) {
  const std::uint64_t element = qformat_info(id).bits / 8;
  return {.format = {.id = id},
          .rows = 1,
          .cols = range.bytes / element,
          .ranges = affine_components(range)};
}

// Plain floats or blocks, all of them in one row.
StoredMatrix blocks_matrix(QFormatId id, const FileRange& range) {
  const QFormatInfo& info = qformat_info(id);
  if (info.block_values == 0) return plain_matrix(id, range);
  return {.format = {.id = id},
          .rows = 1,
          .cols = range.bytes / info.block_bytes * info.block_values,
          .ranges = affine_components(range)};
}

// A component of a matrix whose logical shape is `shape`.
Found component_of(const std::string& module, Component part, const StoredMatrix& matrix,
                   std::span<const std::uint64_t> shape) {
  Found found;
  found.name = module + std::string(component_suffix(part));
  found.range = matrix.ranges[part];
  found.dtype = component_dtype(matrix.format, part);
  found.shape = component_shape(matrix.format, part, shape);
  if (part == Component::kCodes) {
    found.logical_shape.assign(shape.begin(), shape.end());
    found.matrix = matrix;
    return found;
  }
  found.logical_shape = found.shape;
  found.matrix = plain_matrix(plain_qformat(found.dtype).value_or(QFormatId::kBf16), found.range);
  return found;
}

// What `wanted` is of the resident tensor, if anything.
std::optional<Component> resident_part(const ResidentTensor& tensor, std::string_view wanted) {
  if (wanted == tensor.name) return Component::kCodes;
  if (!tensor.has_weight_suffix) return std::nullopt;
  const auto part = take_component_suffix(wanted);
  if (!part.has_value() || wanted != tensor.name) return std::nullopt;
  return has_component(tensor.format, *part) ? part : std::nullopt;
}

Found resident_component(const ResidentTensor& tensor, Component part, const StoredMatrix& matrix) {
  Found found = component_of(tensor.name, part, matrix, tensor.shape);
  if (!tensor.has_weight_suffix) found.name = tensor.name;
  return found;
}

std::string expert_hint(std::uint32_t layers, std::uint32_t experts) {
  return "experts are called model.layers.L.mlp.experts.E.gate_proj, up_proj or down_proj, with L "
         "below " +
         std::to_string(layers) + " and E below " + std::to_string(experts);
}

// Keeps everything open that a Found points into.
class Extraction {
 public:
  explicit Extraction(const ExtractOptions& options) : options_(options) {}

  Result<Found> find(PathKind kind) {
    switch (kind) {
      case PathKind::kPack:
        return in_lone_pack();
      case PathKind::kModel:
        return in_model();
      default:
        return in_checkpoint(kind);
    }
  }

  // A canonical name in a source that uses others; nullopt when it means nothing, or the source is
  // of no kind that can be converted.
  Result<std::optional<Found>> canonical() {
    const auto expert = parse_expert_name(options_.tensor);
    const bool could_be = expert.has_value() || options_.tensor.starts_with("model.") ||
                          options_.tensor.starts_with("lm_head");
    if (!could_be) return std::optional<Found>();
    auto opened = ModelSource::open(options_.path);
    if (!opened.is_ok()) return not_converted(opened.status());
    source_.emplace(std::move(opened).value());
    MOE_RETURN_IF_ERROR(source_->check_usable_in_place());
    const auto plan = make_plan(*source_, ConvertOptions{});
    if (!plan.is_ok()) return not_converted(plan.status());
    const PackManifest& pack = plan.value().pack;
    if (expert.has_value() && expert->layer < pack.num_layers &&
        expert->expert < pack.experts_of(expert->layer)) {
      const StoredMatrix matrix =
          stored_matrix(plan.value().experts.of(expert->layer, expert->expert, expert->projection));
      if (!has_component(matrix.format, expert->part)) return std::optional<Found>();
      const std::array<std::uint64_t, 2> shape{matrix.rows, matrix.cols};
      return std::optional<Found>(
          component_of(expert_name(expert->layer, expert->expert, expert->projection), expert->part,
                       matrix, shape));
    }
    const ResidentManifest& residents = plan.value().resident;
    for (std::size_t i = 0; i < residents.tensors.size(); ++i) {
      const auto part = resident_part(residents.tensors[i], options_.tensor);
      if (!part.has_value()) continue;
      return std::optional<Found>(resident_component(
          residents.tensors[i], *part, stored_matrix(plan.value().resident_sources[i])));
    }
    return std::optional<Found>();
  }

 private:
  Result<Found> in_lone_pack() {
    MOE_ASSIGN_OR_RETURN(const PackManifest pack, read_lone_pack(options_.path));
    return in_pack(options_.path, pack, NearestNames(options_.tensor));
  }

  Result<Found> in_pack(const std::filesystem::path& path, const PackManifest& pack,
                        const NearestNames& nearest) {
    const auto name = parse_expert_name(options_.tensor);
    const bool there = name.has_value() && name->layer < pack.num_layers &&
                       name->expert < pack.experts_of(name->layer);
    const ProjectionLayout* part =
        there ? &pack.layout_of(name->layer, name->expert).of(name->projection) : nullptr;
    if (!there || !has_component(part->format, name->part)) {
      return no_such_tensor(options_.path.string(), options_.tensor, nearest,
                            expert_hint(pack.num_layers, pack.num_experts));
    }
    const LayerEntry& layer = pack.layers[name->layer];
    MOE_ASSIGN_OR_RETURN(File file, File::open(path / layer.file));
    file_.emplace(std::move(file));
    const std::array<std::uint64_t, 2> shape{part->rows, part->cols};
    return component_of(expert_name(name->layer, name->expert, name->projection), name->part,
                        stored_matrix(*part, *file_, layer.experts[name->expert].offset), shape);
  }

  // A tensor that is kept of the prediction block, under the name that the source has for it.
  Result<std::optional<Found>> in_prediction(NearestNames& nearest) {
    MOE_ASSIGN_OR_RETURN(const auto manifest, read_prediction_manifest(options_.path));
    if (!manifest.has_value()) return std::optional<Found>();
    const PredictionTensor* tensor = manifest->find(options_.tensor);
    if (tensor == nullptr) tensor = manifest->find(options_.tensor + ".weight");
    if (tensor == nullptr) {
      for (const PredictionTensor& other : manifest->tensors) nearest.add(other.name);
      return std::optional<Found>();
    }
    MOE_ASSIGN_OR_RETURN(File file, File::open(options_.path / kPredictionDataName));
    file_.emplace(std::move(file));
    const PredictionType type = *prediction_type(manifest->container, tensor->type);
    Found found{.name = tensor->name,
                .range = {.file = &*file_, .offset = tensor->offset, .bytes = tensor->size},
                .dtype = type.storage,
                .shape = tensor->shape,
                .logical_shape = tensor->shape,
                .matrix = std::nullopt};
    if (!type.format.has_value()) return std::optional(std::move(found));
    found.matrix = blocks_matrix(*type.format, found.range);
    const WeightFormat format{.id = *type.format};
    // Blocks are bytes to whoever reads them.
    if (is_block(format)) found.shape = component_shape(format, Component::kCodes, tensor->shape);
    return std::optional(std::move(found));
  }

  Result<Found> in_model() {
    std::error_code ignored;
    if (std::filesystem::exists(options_.path / kUnfinishedMarker, ignored)) {
      return open_model_dir(options_.path, options_.pack).status();
    }
    MOE_ASSIGN_OR_RETURN(const ParsedConfig config,
                         read_model_config(options_.path / "config.json"));
    MOE_ASSIGN_OR_RETURN(const ResidentManifest residents,
                         read_model_residents(options_.path, config.model));
    NearestNames nearest(options_.tensor);
    for (const ResidentTensor& tensor : residents.tensors) {
      nearest.add(tensor.name);
      const auto part = resident_part(tensor, options_.tensor);
      if (!part.has_value()) continue;
      MOE_ASSIGN_OR_RETURN(residents_, ResidentData::open(options_.path, residents));
      return resident_component(tensor, *part, residents_.matrix(tensor));
    }
    MOE_ASSIGN_OR_RETURN(auto predicting, in_prediction(nearest));
    if (predicting.has_value()) return *std::move(predicting);
    MOE_ASSIGN_OR_RETURN(const std::string name, choose_pack(options_.path, options_.pack));
    const std::filesystem::path path = options_.path / name;
    MOE_ASSIGN_OR_RETURN(const PackManifest pack,
                         read_pack_directory(path, pack_dimensions(config.model)));
    return in_pack(path, pack, nearest);
  }

  Result<Found> in_checkpoint(PathKind kind) {
    MOE_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open_tensors(options_.path));
    checkpoint_.emplace(std::move(checkpoint));
    const TensorRef* tensor = checkpoint_->find(options_.tensor);
    if (tensor == nullptr) tensor = checkpoint_->find(options_.tensor + ".weight");
    if (tensor != nullptr) return source_tensor(*tensor);
    if (kind == PathKind::kCheckpoint) {
      MOE_ASSIGN_OR_RETURN(auto found, canonical());
      if (found.has_value()) return *std::move(found);
    }
    NearestNames nearest(options_.tensor);
    for (const TensorRef& other : checkpoint_->tensors()) nearest.add(other.info->name);
    return no_such_tensor(options_.path.string(), options_.tensor, nearest, {});
  }

  // A tensor under the checkpoint's own name.
  Result<Found> source_tensor(const TensorRef& tensor) {
    const TensorInfo& info = *tensor.info;
    Found found{.name = info.name,
                .range = file_range(tensor),
                .dtype = info.dtype,
                .shape = info.shape,
                .logical_shape = info.shape,
                .matrix = std::nullopt};
    if (const auto plain = plain_qformat(info.dtype); plain.has_value()) {
      found.matrix = plain_matrix(*plain, found.range);
    } else if (options_.as_f32) {
      MOE_RETURN_IF_ERROR(find_source_matrix(tensor, found));
    }
    return found;
  }

  // The codes of a quantized module: bits and group are what config.json says, as shapes alone
  // leave them open (4 bits in groups of 64 look like 8 in groups of 32).
  Status find_source_matrix(const TensorRef& tensor, Found& found) {
    std::string_view module = found.name;
    const auto part = take_component_suffix(module);
    const TensorRef* scales = checkpoint_->find(std::string(module) + ".scales");
    const TensorRef* biases = checkpoint_->find(std::string(module) + ".biases");
    if (found.dtype != DType::kU32 || part != Component::kCodes || scales == nullptr ||
        biases == nullptr) {
      return unsupported(tensor.where(),
                         "dtype " + std::string(dtype_name(found.dtype)) +
                             " without scales and biases cannot be decoded",
                         "leave out --f32 for the stored bytes");
    }
    const std::filesystem::path config = checkpoint_->directory() / "config.json";
    MOE_ASSIGN_OR_RETURN(const ParsedConfig parsed, read_model_config(config));
    const auto declared = parsed.quantization.has_value() ? parsed.quantization->format_of(module)
                                                          : std::optional<WeightFormat>();
    if (!declared.has_value()) {
      return corrupt(tensor.where(), "holds codes, but " + printable(config.string(), 4096) +
                                         " does not say how many bits they have");
    }
    if (!is_affine(*declared)) {
      return corrupt(tensor.where(), "has scales and biases, but " +
                                         printable(config.string(), 4096) + " calls it " +
                                         to_string(*declared));
    }
    WeightFormat format = *declared;
    format.scale_type = scales->info->dtype;
    const std::uint64_t bits = qformat_info(format.id).bits;
    const std::uint64_t scale_bytes = dtype_bits(format.scale_type) / 8;
    // Both sizes are those of real file sections, so nothing here overflows.
    const std::uint64_t elements = found.range.bytes * 8 / bits;
    if ((format.scale_type != DType::kBf16 && format.scale_type != DType::kF16) ||
        biases->info->dtype != format.scale_type || biases->info->size != scales->info->size ||
        found.shape.empty() || elements * bits != found.range.bytes * 8 ||
        scales->info->size != elements / format.group_size * scale_bytes ||
        found.shape.back() * 32 % bits != 0 ||
        found.shape.back() * 32 / bits % format.group_size != 0) {
      return corrupt(tensor.where(), "the shapes of its codes, scales and biases do not fit the " +
                                         to_string(format) + " that config.json gives");
    }
    found.logical_shape.back() = found.shape.back() * 32 / bits;
    found.matrix = StoredMatrix{
        .format = format,
        .rows = 1,
        .cols = elements,
        .ranges = affine_components(found.range, file_range(*scales), file_range(*biases))};
    return Status::ok();
  }

  // Tensors of a checkpoint can be had by the names it uses; those of GGUF files never look like
  // canonical ones.
  Result<std::optional<Found>> not_converted(const Status& status) const {
    if (has_gguf_name(options_.path)) return status;
    return std::optional<Found>();
  }

  const ExtractOptions& options_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<ModelSource> source_;
  std::optional<File> file_;  // a layer's
  ResidentData residents_;
};

Status copy_range(const FileRange& range, const ByteSink& sink) {
  std::vector<std::byte> buffer(std::min(range.bytes, kCopyBlock));
  for (std::uint64_t at = 0; at < range.bytes; at += buffer.size()) {
    const std::span<std::byte> part =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), range.bytes - at));
    MOE_RETURN_IF_ERROR(range.read(at, part));
    MOE_RETURN_IF_ERROR(sink(part));
  }
  return Status::ok();
}

Status copy_decoded(const StoredMatrix& matrix, const ByteSink& sink) {
  BlockDecoder decoder;
  const std::uint64_t elements = matrix.elements();
  for (std::uint64_t at = 0; at < elements; at += kDecodeBlock) {
    MOE_ASSIGN_OR_RETURN(const DecodedBlock block,
                         decoder.decode(matrix, at, std::min(kDecodeBlock, elements - at)));
    MOE_RETURN_IF_ERROR(sink(std::as_bytes(block.values)));
  }
  return Status::ok();
}

Result<ExtractedTensor> write_found(const Found& found, const ExtractOptions& options,
                                    const ByteSink& sink) {
  ExtractedTensor out{.name = found.name,
                      .dtype = std::string(dtype_name(found.dtype)),
                      .shape = found.shape,
                      .bytes = found.range.bytes,
                      .file = found.range.file->path(),
                      .offset = found.range.offset};
  if (found.range.runs != nullptr) {
    out.offset += found.range.runs->front().first * found.range.row_bytes;
  }
  if (!options.as_f32) {
    MOE_RETURN_IF_ERROR(copy_range(found.range, sink));
    return out;
  }
  if (!found.matrix.has_value()) {
    return unsupported(Where{.file = out.file, .tensor = out.name},
                       "dtype " + out.dtype + " cannot be decoded",
                       "leave out --f32 for the stored bytes");
  }
  out.dtype = dtype_name(DType::kF32);
  out.shape = found.logical_shape;
  out.bytes = found.matrix->elements() * sizeof(float);
  MOE_RETURN_IF_ERROR(copy_decoded(*found.matrix, sink));
  return out;
}

}  // namespace

Result<ExtractedTensor> extract_tensor(const ExtractOptions& options, const ByteSink& sink) {
  MOE_ASSIGN_OR_RETURN(const PathKind kind, find_path_kind(options.path));
  MOE_RETURN_IF_ERROR(check_pack_choice(options.path, kind, options.pack));
  Extraction extraction(options);
  if (kind != PathKind::kGguf) {
    MOE_ASSIGN_OR_RETURN(const Found found, extraction.find(kind));
    return write_found(found, options, sink);
  }
  MOE_ASSIGN_OR_RETURN(const auto found, extraction.canonical());
  return found.has_value() ? write_found(*found, options, sink)
                           : extract_gguf_tensor(options, sink);
}

}  // namespace moepack
