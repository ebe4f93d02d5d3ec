#include "formats/pack/resident_manifest.h"

#include <algorithm>
#include <array>
#include <map>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/pack/resident_files.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";
constexpr std::string_view kScalesSuffix = ".scales";
constexpr std::string_view kBiasesSuffix = ".biases";

// Names of the convention values, indexed by their enumerators.
constexpr std::array<std::string_view, 2> kNormNames{"plain", "one_plus"};
constexpr std::array<std::string_view, 2> kVHeadNames{"grouped", "tiled"};
constexpr std::array<std::string_view, 2> kALogNames{"log", "neg_exp"};
constexpr std::array<std::string_view, 2> kConv1dNames{"c1t", "ct1"};

// ---- writing ----

std::string component_line(const std::string& name, std::uint64_t offset, std::uint64_t size,
                           std::span<const std::uint64_t> shape, DType dtype,
                           const std::string& more) {
  return json_quote(name) + ": {\"offset\": " + std::to_string(offset) +
         ", \"size\": " + std::to_string(size) + ", \"shape\": " + shape_text(shape) +
         ", \"dtype\": " + json_quote(dtype_name(dtype)) + more + "}";
}

// Every component under its full name, which sorts them.
std::map<std::string, std::string> component_lines(const ResidentManifest& manifest) {
  std::map<std::string, std::string> lines;
  for (const ResidentTensor& t : manifest.tensors) {
    const std::string weight = t.has_weight_suffix ? t.name + std::string(kWeightSuffix) : t.name;
    lines[weight] =
        component_line(weight, t.weight_offset, t.bytes.weight, weight_shape(t.format, t.shape),
                       qformat_info(t.format.id).storage, ", " + format_members(t.format));
    if (!is_affine(t.format)) continue;
    const auto groups = scales_shape(t.format, t.shape);
    const std::string scales = t.name + std::string(kScalesSuffix);
    const std::string biases = t.name + std::string(kBiasesSuffix);
    lines[scales] =
        component_line(scales, t.scales_offset, t.bytes.scales, groups, t.format.scale_type, "");
    lines[biases] =
        component_line(biases, t.biases_offset, t.bytes.biases, groups, t.format.scale_type, "");
  }
  return lines;
}

std::string conventions_text(const ResidentConventions& c) {
  const auto name = [](const auto& names, auto value) {
    return json_quote(names[static_cast<std::size_t>(value)]);
  };
  return "{\"norm\": " + name(kNormNames, c.norm) +
         ", \"v_heads\": " + name(kVHeadNames, c.v_heads) +
         ", \"a_log\": " + name(kALogNames, c.a_log) +
         ", \"conv1d\": " + name(kConv1dNames, c.conv1d) + "}";
}

// ---- reading ----

Status check_version(const JsonFields& root) {
  if (!root.has("format_version")) {
    return root.error("format_version", "is missing; this is not a manifest of moepack",
                      "adopt it with moepack import, or convert the model again");
  }
  MOE_ASSIGN_OR_RETURN(const std::uint64_t version, root.number("format_version"));
  if (version == kResidentFormatVersion) return Status::ok();
  const Status error = root.error("format_version",
                                  "is " + std::to_string(version) + ", this moepack reads " +
                                      std::to_string(kResidentFormatVersion),
                                  "use the moepack that wrote it or convert again");
  return {StatusCode::kUnsupported, error.message()};
}

template <typename Enum>
Status parse_choice(const JsonFields& fields, std::string_view key,
                    const std::array<std::string_view, 2>& names, Enum& out) {
  MOE_ASSIGN_OR_RETURN(const std::string text, fields.string(key));
  const auto it = std::find(names.begin(), names.end(), text);
  if (it == names.end()) {
    return fields.error(key, "\"" + printable(text) + "\" must be " + std::string(names[0]) +
                                 " or " + std::string(names[1]));
  }
  out = static_cast<Enum>(it - names.begin());
  return Status::ok();
}

Result<ResidentConventions> parse_conventions(const JsonFields& root) {
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, root.object("conventions"));
  MOE_RETURN_IF_ERROR(fields.allow_only({"norm", "v_heads", "a_log", "conv1d"}));
  ResidentConventions c;
  MOE_RETURN_IF_ERROR(parse_choice(fields, "norm", kNormNames, c.norm));
  MOE_RETURN_IF_ERROR(parse_choice(fields, "v_heads", kVHeadNames, c.v_heads));
  MOE_RETURN_IF_ERROR(parse_choice(fields, "a_log", kALogNames, c.a_log));
  MOE_RETURN_IF_ERROR(parse_choice(fields, "conv1d", kConv1dNames, c.conv1d));
  return c;
}

// The stored dimensions of a weight component; at least one, none zero.
Result<std::vector<std::uint64_t>> parse_shape(const JsonFields& fields) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, fields.array("shape"));
  if (list->empty() || list->size() > kMaxTensorRank) {
    return fields.error("shape",
                        "must have 1 to " + std::to_string(kMaxTensorRank) + " dimensions");
  }
  std::vector<std::uint64_t> shape;
  for (const nlohmann::json& dimension : *list) {
    if (!dimension.is_number_unsigned() || dimension.get<std::uint64_t>() == 0) {
      return fields.error("shape", "must hold positive integers");
    }
    shape.push_back(dimension.get<std::uint64_t>());
  }
  return shape;
}

// Fills in rows, cols and bytes from format and shape.
Status measure(const JsonFields& fields, ResidentTensor& tensor) {
  std::uint64_t rows = 1;
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    const auto product = checked_mul(rows, tensor.shape[i]);
    if (!product.has_value()) return fields.error("shape", "is too large");
    rows = *product;
  }
  tensor.rows = rows;
  tensor.cols = tensor.shape.back();
  const auto bytes = matrix_bytes(tensor.format, tensor.rows, tensor.cols);
  if (!bytes.has_value()) {
    return fields.error(
        "shape", shape_text(tensor.shape) + " cannot be held in " + to_string(tensor.format));
  }
  tensor.bytes = *bytes;
  return Status::ok();
}

Status check_dtype(const JsonFields& fields, DType expected) {
  MOE_ASSIGN_OR_RETURN(const std::string dtype, fields.string("dtype"));
  if (dtype == dtype_name(expected)) return Status::ok();
  return fields.error("dtype", "is \"" + printable(dtype) + "\", but the format gives " +
                                   std::string(dtype_name(expected)));
}

// `alignment`: kResidentAlignment in our own data file, 1 in those of others.
Result<std::uint64_t> parse_offset(const JsonFields& fields, std::uint64_t alignment) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t offset, fields.number("offset", 0, kMaxDataBytes));
  if (offset % alignment != 0) {
    return fields.error(
        "offset", std::to_string(offset) + " is not a multiple of " + std::to_string(alignment));
  }
  return offset;
}

Status parse_group_component(const JsonFields& tensors, const std::string& name,
                             const ResidentTensor& tensor, std::uint64_t alignment,
                             std::uint64_t& offset) {
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, tensors.object(name));
  MOE_RETURN_IF_ERROR(fields.allow_only({"offset", "size", "shape", "dtype"}));
  MOE_ASSIGN_OR_RETURN(offset, parse_offset(fields, alignment));
  MOE_RETURN_IF_ERROR(expect_shape(fields, "shape", scales_shape(tensor.format, tensor.shape)));
  MOE_RETURN_IF_ERROR(check_dtype(fields, tensor.format.scale_type));
  return fields.expect_number("size", tensor.bytes.scales, "shape and dtype");
}

// `key` is the full name of the weight component.
Result<ResidentTensor> parse_tensor(const JsonFields& tensors, const std::string& key,
                                    std::uint64_t alignment) {
  ResidentTensor tensor;
  tensor.has_weight_suffix = key.ends_with(kWeightSuffix);
  tensor.name = tensor.has_weight_suffix ? key.substr(0, key.size() - kWeightSuffix.size()) : key;
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, tensors.object(key));
  MOE_RETURN_IF_ERROR(fields.allow_only(
      {"offset", "size", "shape", "dtype", "format", "group_size", "scale_dtype"}));
  MOE_ASSIGN_OR_RETURN(tensor.format, parse_format_members(fields));
  MOE_ASSIGN_OR_RETURN(tensor.shape, parse_shape(fields));
  const bool affine = is_affine(tensor.format);
  if (affine && !tensor.has_weight_suffix) {
    return fields.error("format", to_string(tensor.format) + " needs a name in .weight");
  }
  const auto inputs = logical_inputs(tensor.format, tensor.shape.back());
  if (!inputs.has_value()) {
    return fields.error("shape", "its last dimension is no whole number of " +
                                     std::string(affine ? "codes" : "blocks"));
  }
  tensor.shape.back() = *inputs;
  MOE_RETURN_IF_ERROR(measure(fields, tensor));
  MOE_RETURN_IF_ERROR(check_dtype(fields, qformat_info(tensor.format.id).storage));
  MOE_RETURN_IF_ERROR(fields.expect_number("size", tensor.bytes.weight, "shape and format"));
  MOE_ASSIGN_OR_RETURN(tensor.weight_offset, parse_offset(fields, alignment));
  if (affine) {
    MOE_RETURN_IF_ERROR(parse_group_component(tensors, tensor.name + std::string(kScalesSuffix),
                                              tensor, alignment, tensor.scales_offset));
    MOE_RETURN_IF_ERROR(parse_group_component(tensors, tensor.name + std::string(kBiasesSuffix),
                                              tensor, alignment, tensor.biases_offset));
  }
  return tensor;
}

// True for NAME.scales and NAME.biases of an affine NAME.weight, which parse_tensor reads.
bool is_group_component(const JsonFields& tensors, const std::string& key) {
  for (std::string_view suffix : {kScalesSuffix, kBiasesSuffix}) {
    if (!key.ends_with(suffix)) continue;
    const std::string weight =
        key.substr(0, key.size() - suffix.size()) + std::string(kWeightSuffix);
    const nlohmann::json* node = tensors.find(weight);
    return node != nullptr && node->is_object() && node->contains("group_size");
  }
  return false;
}

std::vector<ResidentExtent> extents_of(const ResidentManifest& manifest) {
  std::vector<ResidentExtent> extents;
  for (const ResidentTensor& t : manifest.tensors) {
    extents.push_back({t.weight_offset, t.bytes.weight, t.name});
    if (!is_affine(t.format)) continue;
    extents.push_back({t.scales_offset, t.bytes.scales, t.name});
    extents.push_back({t.biases_offset, t.bytes.biases, t.name});
  }
  return extents;
}

// In a file of ours the components follow each other, each at the next multiple of 64.
Status check_extents(const JsonFields& root, const JsonFields& tensors,
                     const ResidentManifest& manifest) {
  std::vector<ResidentExtent> extents = extents_of(manifest);
  if (!manifest.files.empty()) return check_resident_extents(tensors, extents, manifest.files);
  std::sort(extents.begin(), extents.end(),
            [](const ResidentExtent& a, const ResidentExtent& b) { return a.begin < b.begin; });
  std::uint64_t end = 0;
  for (const ResidentExtent& extent : extents) {
    if (extent.begin != end) {
      return tensors.error(
          extent.name, "offset " + std::to_string(extent.begin) +
                           (extent.begin < end ? " overlaps" : " leaves a gap to") +
                           " the component before it, which ends at byte " + std::to_string(end));
    }
    if (extent.bytes > manifest.data_size || end > manifest.data_size - extent.bytes) {
      return root.error("data_size", "is " + std::to_string(manifest.data_size) + ", but " +
                                         printable(extent.name) + " does not fit");
    }
    end = align_up(end + extent.bytes, kResidentAlignment);
  }
  if (end == manifest.data_size) return Status::ok();
  return root.error("data_size", "is " + std::to_string(manifest.data_size) +
                                     ", but the components end at byte " + std::to_string(end));
}

Status parse_tensors(const JsonFields& root, ResidentManifest& manifest) {
  MOE_ASSIGN_OR_RETURN(const JsonFields tensors, root.object("tensors"));
  const nlohmann::json& node = *root.find("tensors");
  const std::uint64_t alignment = manifest.files.empty() ? kResidentAlignment : 1;
  MOE_RETURN_IF_ERROR(root.expect_number("num_tensors", node.size(), "the list of tensors"));
  for (const auto& [key, value] : node.items()) {
    if (key.empty()) return tensors.error("", "holds a tensor without a name");
    if (is_group_component(tensors, key)) continue;
    if (key.ends_with(kScalesSuffix) || key.ends_with(kBiasesSuffix)) {
      return tensors.error(key, "belongs to no quantized tensor");
    }
    MOE_ASSIGN_OR_RETURN(ResidentTensor tensor, parse_tensor(tensors, key, alignment));
    manifest.tensors.push_back(std::move(tensor));
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const ResidentTensor& a, const ResidentTensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < manifest.tensors.size(); ++i) {
    if (manifest.tensors[i].name == manifest.tensors[i - 1].name) {
      return tensors.error(manifest.tensors[i].name, "stands twice, with and without .weight");
    }
  }
  return check_extents(root, tensors, manifest);
}

}  // namespace

std::string resident_manifest_text(const ResidentManifest& manifest) {
  const auto lines = component_lines(manifest);
  std::string text = "{\n  \"format_version\": " + std::to_string(kResidentFormatVersion) + ",\n";
  text += "  \"model\": " + json_quote(manifest.model) + ",\n";
  text += "  \"data_size\": " + std::to_string(manifest.data_size) + ",\n";
  if (!manifest.files.empty()) {
    text += "  \"files\": " + resident_files_text(manifest.files) + ",\n";
  }
  text += "  \"checksum\": " + json_quote(checksum_text(manifest.checksum)) + ",\n";
  text += "  \"conventions\": " + conventions_text(manifest.conventions) + ",\n";
  text += "  \"num_tensors\": " + std::to_string(lines.size()) + ",\n";
  text += "  \"tensors\": {";
  std::string_view separator = "\n    ";
  for (const auto& [name, line] : lines) {
    text += separator;
    text += line;
    separator = ",\n    ";
  }
  text += "\n  }";
  if (!manifest.config_json.empty()) text += ",\n  \"config\": " + manifest.config_json;
  return text + "\n}\n";
}

Status write_resident_manifest(const std::filesystem::path& directory,
                               const ResidentManifest& manifest) {
  return write_text_file(directory / kResidentManifestName, resident_manifest_text(manifest));
}

Result<ResidentManifest> parse_resident_manifest(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  MOE_RETURN_IF_ERROR(check_version(root));
  MOE_RETURN_IF_ERROR(root.allow_only({"format_version", "model", "data_size", "files", "checksum",
                                       "conventions", "num_tensors", "tensors", "config"}));
  ResidentManifest manifest;
  MOE_ASSIGN_OR_RETURN(manifest.model, root.string("model"));
  MOE_ASSIGN_OR_RETURN(manifest.data_size, root.number("data_size", 0, kMaxDataBytes));
  if (root.has("files")) {
    MOE_ASSIGN_OR_RETURN(manifest.files, parse_resident_files(root, manifest.data_size));
  }
  MOE_ASSIGN_OR_RETURN(manifest.checksum, root.checksum("checksum"));
  MOE_ASSIGN_OR_RETURN(manifest.conventions, parse_conventions(root));
  MOE_RETURN_IF_ERROR(parse_tensors(root, manifest));
  if (const nlohmann::json* config = root.find("config"); config != nullptr) {
    manifest.config_json = config->dump(-1, ' ', true);
  }
  return manifest;
}

Result<ResidentManifest> read_resident_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kResidentManifestName;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxManifestBytes));
  MOE_ASSIGN_OR_RETURN(ResidentManifest manifest, parse_resident_manifest(text, path.string()));
  MOE_RETURN_IF_ERROR(check_resident_file_sizes(directory, manifest));
  return manifest;
}

}  // namespace moepack
