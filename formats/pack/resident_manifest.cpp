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
    for (Component c : stored_components(t.format)) {
      std::string name = t.name;
      if (t.has_weight_suffix) name += component_suffix(c);
      const std::string more = c == Component::kCodes ? ", " + format_members(t.format) : "";
      lines[name] =
          component_line(name, t.offsets[c], t.bytes[c], component_shape(t.format, c, t.shape),
                         component_dtype(t.format, c), more);
    }
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
  return root.expect_version(kResidentFormatVersion,
                             "use the moepack that wrote it or convert again");
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

// A component beside the codes, which say all about the matrix.
Status parse_component(const JsonFields& tensors, Component component, std::uint64_t alignment,
                       ResidentTensor& tensor) {
  const std::string name = tensor.name + std::string(component_suffix(component));
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, tensors.object(name));
  MOE_RETURN_IF_ERROR(fields.allow_only({"offset", "size", "shape", "dtype"}));
  MOE_ASSIGN_OR_RETURN(tensor.offsets[component], parse_offset(fields, alignment));
  const auto shape = component_shape(tensor.format, component, tensor.shape);
  MOE_RETURN_IF_ERROR(expect_shape(fields, "shape", shape));
  MOE_RETURN_IF_ERROR(check_dtype(fields, component_dtype(tensor.format, component)));
  return fields.expect_number("size", tensor.bytes[component], "shape and dtype");
}

// `key` is the full name of the codes.
Result<ResidentTensor> parse_tensor(const JsonFields& tensors, const std::string& key,
                                    std::uint64_t alignment) {
  ResidentTensor tensor;
  std::string_view name = key;
  tensor.has_weight_suffix = take_component_suffix(name).has_value();
  tensor.name = name;
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, tensors.object(key));
  if (fields.has("row_order")) {
    return fields.error("row_order",
                        "is of expert packs; rows of resident tensors follow each other",
                        "convert the model again");
  }
  MOE_RETURN_IF_ERROR(fields.allow_only(
      {"offset", "size", "shape", "dtype", "format", "group_size", "scale_dtype"}));
  MOE_ASSIGN_OR_RETURN(tensor.format, parse_format_members(fields));
  MOE_ASSIGN_OR_RETURN(tensor.shape, parse_shape(fields));
  const bool has_others = stored_components(tensor.format).size() > 1;
  if (has_others && !tensor.has_weight_suffix) {
    return fields.error("format", to_string(tensor.format) + " needs a name in .weight");
  }
  const auto inputs = logical_inputs(tensor.format, tensor.shape.back());
  if (!inputs.has_value()) {
    return fields.error("shape", "its last dimension is no whole number of " +
                                     std::string(is_affine(tensor.format) ? "codes" : "blocks"));
  }
  tensor.shape.back() = *inputs;
  MOE_RETURN_IF_ERROR(measure(fields, tensor));
  MOE_RETURN_IF_ERROR(check_dtype(fields, component_dtype(tensor.format, Component::kCodes)));
  MOE_RETURN_IF_ERROR(fields.expect_number("size", tensor.bytes.codes(), "shape and format"));
  MOE_ASSIGN_OR_RETURN(tensor.offsets.codes(), parse_offset(fields, alignment));
  for (Component c : stored_components(tensor.format)) {
    if (c != Component::kCodes) {
      MOE_RETURN_IF_ERROR(parse_component(tensors, c, alignment, tensor));
    }
  }
  return tensor;
}

// The component that `key` names beside the codes: scales of NAME for NAME.scales.
std::optional<Component> component_beside_codes(std::string_view key) {
  const auto component = take_component_suffix(key);
  return component == Component::kCodes ? std::nullopt : component;
}

// True when `key` names such a component of a matrix whose format has it; parse_tensor reads it.
bool belongs_to_codes(const JsonFields& tensors, std::string_view key, Component component) {
  const std::string suffix(component_suffix(component));
  const std::string stem(key.substr(0, key.size() - suffix.size()));
  const nlohmann::json* codes =
      tensors.find(stem + std::string(component_suffix(Component::kCodes)));
  if (codes == nullptr || !codes->is_object() || !codes->contains("format")) return false;
  const nlohmann::json& format = codes->at("format");
  const auto id = format.is_string() ? qformat_from_name(format.get<std::string>()) : std::nullopt;
  // Codes of an unknown format are refused by their own name.
  return !id.has_value() || has_component({.id = *id}, component);
}

std::vector<ResidentExtent> extents_of(const ResidentManifest& manifest) {
  std::vector<ResidentExtent> extents;
  for (const ResidentTensor& t : manifest.tensors) {
    for (Component c : stored_components(t.format)) {
      extents.push_back({t.offsets[c], t.bytes[c], t.name});
    }
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
    if (const auto component = component_beside_codes(key)) {
      if (belongs_to_codes(tensors, key, *component)) continue;
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
