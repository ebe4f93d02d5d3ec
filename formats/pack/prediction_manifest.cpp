#include "formats/pack/prediction_manifest.h"

#include <algorithm>
#include <array>
#include <system_error>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/pack/resident_manifest.h"
#include "formats/weights/format_json.h"
#include "formats/weights/ggml_types.h"

namespace moepack {
namespace {

// Indexed by TensorContainer.
constexpr std::array<std::string_view, 2> kContainerNames{"safetensors", "gguf"};

std::string_view container_name(TensorContainer container) {
  return kContainerNames[static_cast<std::size_t>(container)];
}

// What the list's checksum is taken of: names, types, shapes and checksums, not the layout of the
// JSON around them.
std::uint64_t list_checksum(const PredictionManifest& manifest) {
  ChecksumStream sum;
  for (const PredictionTensor& t : manifest.tensors) {
    const std::string line =
        t.name + " " + t.type + " " + shape_text(t.shape) + " " + checksum_text(t.checksum) + "\n";
    sum.add(std::as_bytes(std::span(line)));
  }
  return sum.finish();
}

Result<TensorContainer> parse_container(const JsonFields& root) {
  MOE_ASSIGN_OR_RETURN(const std::string name, root.string("container"));
  const auto* const at = std::find(kContainerNames.begin(), kContainerNames.end(), name);
  if (at != kContainerNames.end()) {
    return static_cast<TensorContainer>(at - kContainerNames.begin());
  }
  return root.error("container", "\"" + printable(name) + "\" must be safetensors or gguf");
}

Result<std::vector<std::uint64_t>> parse_shape(const JsonFields& fields) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, fields.array("shape"));
  std::vector<std::uint64_t> shape;
  for (const nlohmann::json& dimension : *list) {
    if (!dimension.is_number_unsigned()) {
      return fields.error("shape", "must hold whole numbers, none negative");
    }
    shape.push_back(dimension.get<std::uint64_t>());
  }
  return shape;
}

Status parse_tensor(const JsonFields& tensors, const std::string& name,
                    PredictionManifest& manifest) {
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, tensors.object(name));
  MOE_RETURN_IF_ERROR(fields.allow_only({"offset", "size", "shape", "type", "checksum"}));
  PredictionTensor tensor;
  tensor.name = name;
  MOE_ASSIGN_OR_RETURN(tensor.type, fields.string("type"));
  MOE_ASSIGN_OR_RETURN(tensor.shape, parse_shape(fields));
  MOE_ASSIGN_OR_RETURN(tensor.checksum, fields.checksum("checksum"));
  if (!prediction_type(manifest.container, tensor.type).has_value()) {
    return fields.error("type", "\"" + printable(tensor.type) + "\" is no type of " +
                                    std::string(container_name(manifest.container)));
  }
  const std::string what = shape_text(tensor.shape) + " of " + tensor.type;
  if (!append_prediction(std::move(tensor), manifest)) {
    return fields.error("shape", what + " cannot be held");
  }
  const PredictionTensor& placed = manifest.tensors.back();
  MOE_RETURN_IF_ERROR(fields.expect_number("size", placed.size, "type and shape"));
  return fields.expect_number("offset", placed.offset, "the tensors before it");
}

}  // namespace

const PredictionTensor* PredictionManifest::find(std::string_view name) const {
  const auto at = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const PredictionTensor& t, std::string_view wanted) { return t.name < wanted; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

std::optional<PredictionType> prediction_type(TensorContainer container, std::string_view type) {
  if (container == TensorContainer::kGguf) {
    const auto found = ggml_type_from_name(type);
    if (!found.has_value()) return std::nullopt;
    return PredictionType{.storage = found->storage, .format = found->format};
  }
  const auto dtype = dtype_from_name(type);
  if (!dtype.has_value()) return std::nullopt;
  return PredictionType{.storage = *dtype, .format = plain_qformat(*dtype)};
}

std::optional<std::uint64_t> prediction_bytes(TensorContainer container, std::string_view type,
                                              std::span<const std::uint64_t> shape) {
  std::uint64_t elements = 1;
  for (const std::uint64_t dimension : shape) {
    const auto product = checked_mul(elements, dimension);
    if (!product.has_value()) return std::nullopt;
    elements = *product;
  }
  std::optional<std::uint64_t> bytes;
  if (container == TensorContainer::kGguf) {
    const auto found = ggml_type_from_name(type);
    if (!found.has_value()) return std::nullopt;
    const std::uint64_t row = shape.empty() ? 1 : shape.back();
    if (row % found->block_values != 0) return std::nullopt;
    bytes = checked_mul(elements / found->block_values, found->block_bytes);
  } else {
    const auto dtype = dtype_from_name(type);
    if (!dtype.has_value()) return std::nullopt;
    const auto bits = checked_mul(elements, dtype_bits(*dtype));
    if (!bits.has_value() || *bits % 8 != 0) return std::nullopt;
    bytes = *bits / 8;
  }
  return bytes.has_value() && *bytes <= kMaxDataBytes ? bytes : std::nullopt;
}

bool append_prediction(PredictionTensor tensor, PredictionManifest& manifest) {
  const auto bytes = prediction_bytes(manifest.container, tensor.type, tensor.shape);
  const std::uint64_t offset = align_up(manifest.data_size, kResidentAlignment);
  if (!bytes.has_value() || offset > kMaxDataBytes - *bytes) return false;
  tensor.size = *bytes;
  tensor.offset = offset;
  manifest.data_size = offset + *bytes;
  manifest.tensors.push_back(std::move(tensor));
  return true;
}

std::string prediction_manifest_text(const PredictionManifest& manifest) {
  std::string text = "{\n  \"format_version\": " + std::to_string(kPredictionFormatVersion) + ",\n";
  text += "  \"source\": {\"name\": " + json_quote(manifest.source) +
          ", \"fingerprint\": " + json_quote(checksum_text(manifest.fingerprint)) + "},\n";
  text += "  \"container\": " + json_quote(container_name(manifest.container)) + ",\n";
  text += "  \"quantization\": " + json_quote(manifest.quantization) + ",\n";
  text += "  \"data_size\": " + std::to_string(manifest.data_size) + ",\n";
  text += "  \"checksum\": " + json_quote(checksum_text(list_checksum(manifest))) + ",\n";
  text += "  \"num_tensors\": " + std::to_string(manifest.tensors.size()) + ",\n";
  text += "  \"tensors\": {";
  std::string_view separator = "\n    ";
  for (const PredictionTensor& t : manifest.tensors) {
    text += separator;
    text += json_quote(t.name) + ": {\"offset\": " + std::to_string(t.offset) +
            ", \"size\": " + std::to_string(t.size) + ", \"shape\": " + shape_text(t.shape) +
            ", \"type\": " + json_quote(t.type) +
            ", \"checksum\": " + json_quote(checksum_text(t.checksum)) + "}";
    separator = ",\n    ";
  }
  return text + "\n  }\n}\n";
}

Status write_prediction_manifest(const std::filesystem::path& directory,
                                 const PredictionManifest& manifest) {
  return write_text_file(directory / kPredictionManifestName, prediction_manifest_text(manifest));
}

Result<PredictionManifest> parse_prediction_manifest(std::string_view text,
                                                     const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  MOE_RETURN_IF_ERROR(root.expect_version(
      kPredictionFormatVersion,
      "use the moepack that wrote it, or remove prediction.json and prediction.bin"));
  MOE_RETURN_IF_ERROR(root.allow_only({"format_version", "source", "container", "quantization",
                                       "data_size", "checksum", "num_tensors", "tensors"}));
  PredictionManifest manifest;
  MOE_ASSIGN_OR_RETURN(const JsonFields source, root.object("source"));
  MOE_RETURN_IF_ERROR(source.allow_only({"name", "fingerprint"}));
  MOE_ASSIGN_OR_RETURN(manifest.source, source.string("name"));
  MOE_ASSIGN_OR_RETURN(manifest.fingerprint, source.checksum("fingerprint"));
  MOE_ASSIGN_OR_RETURN(manifest.container, parse_container(root));
  MOE_ASSIGN_OR_RETURN(manifest.quantization, root.string("quantization"));
  MOE_ASSIGN_OR_RETURN(const JsonFields tensors, root.object("tensors"));
  const nlohmann::json& list = *root.find("tensors");
  if (list.empty()) return root.error("tensors", "is empty", "remove the file");
  MOE_RETURN_IF_ERROR(root.expect_number("num_tensors", list.size(), "the list of tensors"));
  // The library keeps the members sorted by name.
  for (const auto& [name, value] : list.items()) {
    MOE_RETURN_IF_ERROR(parse_tensor(tensors, name, manifest));
  }
  MOE_RETURN_IF_ERROR(root.expect_number("data_size", manifest.data_size, "the list of tensors"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t sum, root.checksum("checksum"));
  if (sum == list_checksum(manifest)) return manifest;
  return root.error("checksum",
                    "is " + checksum_text(sum) + ", the list of tensors has " +
                        checksum_text(list_checksum(manifest)),
                    "the list was changed; convert the model again");
}

Result<std::optional<PredictionManifest>> read_prediction_manifest(
    const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kPredictionManifestName;
  if (!is_there(path)) return std::optional<PredictionManifest>();
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxSmallManifestBytes));
  MOE_ASSIGN_OR_RETURN(PredictionManifest manifest, parse_prediction_manifest(text, path.string()));
  MOE_ASSIGN_OR_RETURN(const File data, File::open(directory / kPredictionDataName));
  if (data.size() == manifest.data_size) return std::optional(std::move(manifest));
  return corrupt(Where{.file = data.path()},
                 "has " + std::to_string(data.size()) + " bytes, " + kPredictionManifestName +
                     " says " + std::to_string(manifest.data_size),
                 "convert the model again");
}

}  // namespace moepack
