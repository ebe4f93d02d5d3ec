#include "formats/pack/pack_manifest.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/base/paths.h"
#include "formats/pack/layout_components.h"
#include "formats/pack/q3_keys.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

// Far above any model, far below what makes sums of products overflow.
constexpr std::uint64_t kMaxPageSize = std::uint64_t{1} << 30;

// ---- writing ----

std::string number_member(std::string_view key, std::uint64_t value) {
  return json_quote(key) + ": " + std::to_string(value);
}

std::string layout_members(const ExpertLayout& layout, std::uint64_t page_size,
                           const std::string& indent) {
  std::string text = indent + number_member("expert_size", layout.record_bytes) + ",\n";
  text += indent + number_member("expert_stride", align_up(layout.record_bytes, page_size)) + ",\n";
  text += indent + "\"formats\": {\n";
  for (Projection p : kAllProjections) {
    text += indent + "  " + json_quote(projection_name(p)) + ": {" +
            format_members(layout.of(p).format) + "}";
    text += p == Projection::kDown ? "\n" : ",\n";
  }
  text += indent + "}";
  // Other engines would take the components for rows.
  if (is_in_panels(layout)) return text;
  text += ",\n" + indent + "\"components\": [";
  std::string_view separator = "\n";
  for (const LayoutComponent& c : layout_components(layout)) {
    const std::string quant = c.quant.empty() ? "" : ", \"quant\": " + json_quote(c.quant);
    text += separator;
    text += indent + "  {\"name\": " + json_quote(c.name) + ", " +
            number_member("offset", c.offset) + ", " + number_member("size", c.size) + quant +
            ", \"dtype\": " + json_quote(dtype_name(c.dtype)) +
            ", \"shape\": " + shape_text(c.shape) + "}";
    separator = ",\n";
  }
  return text + "\n" + indent + "]";
}

// The layout of most records of a layer; the lowest index among equals.
std::uint32_t usual_layout(const LayerEntry& layer, std::size_t layouts) {
  std::vector<std::size_t> uses(std::max<std::size_t>(layouts, 1));
  for (const ExpertEntry& expert : layer.experts) ++uses[expert.layout];
  return static_cast<std::uint32_t>(std::max_element(uses.begin(), uses.end()) - uses.begin());
}

std::string layer_line(const PackManifest& manifest, const LayerEntry& layer) {
  if (layer.experts.empty()) return "{\"dense\": true}";
  const std::uint32_t usual = usual_layout(layer, manifest.layouts.size());
  std::string text = "{\"file\": " + json_quote(layer.file) + ", ";
  text += number_member("size", layer.file_size);
  if (usual != 0) text += ", " + number_member("layout", usual);
  std::string experts;
  std::uint64_t next = 0;
  for (std::size_t id = 0; id < layer.experts.size(); ++id) {
    const ExpertEntry& expert = layer.experts[id];
    std::string members;
    if (expert.layout != usual) members = number_member("layout", expert.layout);
    if (expert.offset != next) {
      if (!members.empty()) members += ", ";
      members += number_member("offset", expert.offset);
    }
    if (!members.empty()) {
      if (!experts.empty()) experts += ", ";
      experts += json_quote(std::to_string(id)) + ": {" + members + "}";
    }
    next =
        expert.offset + align_up(manifest.layouts[expert.layout].record_bytes, manifest.page_size);
  }
  if (!experts.empty()) text += ", \"experts\": {" + experts + "}";
  text += ", \"checksums\": [";
  for (std::size_t id = 0; id < layer.experts.size(); ++id) {
    if (id != 0) text += ", ";
    text += json_quote(checksum_text(layer.experts[id].checksum));
  }
  return text + "]}";
}

// ---- reading ----

struct Dimensions {
  std::uint64_t hidden;
  std::uint64_t width;
  std::uint64_t page_size;
};

Status check_component(const JsonFields& fields, const LayoutComponent& expected) {
  MOE_ASSIGN_OR_RETURN(const std::string name, fields.string("name"));
  if (name != expected.name) {
    return fields.error("name", "is \"" + printable(name) + "\", must be " + expected.name);
  }
  MOE_RETURN_IF_ERROR(fields.allow_only({"name", "offset", "size", "quant", "dtype", "shape"}));
  const std::string why = "the format of " + expected.name;
  MOE_RETURN_IF_ERROR(fields.expect_number("offset", expected.offset, why));
  MOE_RETURN_IF_ERROR(fields.expect_number("size", expected.size, why));
  if (fields.has("quant")) {
    MOE_ASSIGN_OR_RETURN(const std::string quant, fields.string("quant"));
    if (quant != expected.quant) {
      return fields.error("quant", "is \"" + printable(quant, 32) + "\", but " + why + " is " +
                                       (expected.quant.empty() ? "no block" : expected.quant));
    }
  }
  MOE_ASSIGN_OR_RETURN(const std::string dtype, fields.string("dtype"));
  if (dtype != dtype_name(expected.dtype)) {
    return fields.error("dtype", "is \"" + printable(dtype) + "\", but " + why + " gives " +
                                     std::string(dtype_name(expected.dtype)));
  }
  return expect_shape(fields, "shape", expected.shape);
}

Status check_components(const JsonFields& fields, std::string_view file,
                        const ExpertLayout& layout) {
  if (is_in_panels(layout)) {
    if (!fields.has("components")) return Status::ok();
    return fields.error("components", "does not belong to a layout with a row_order");
  }
  const std::vector<LayoutComponent> expected = layout_components(layout);
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, fields.array("components"));
  if (list->size() != expected.size()) {
    return fields.error("components", "holds " + std::to_string(list->size()) +
                                          " components, but the formats give " +
                                          std::to_string(expected.size()));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(
        const JsonFields component,
        JsonFields::of((*list)[i], file,
                       fields.path_of("components") + "[" + std::to_string(i) + "]"));
    MOE_RETURN_IF_ERROR(check_component(component, expected[i]));
  }
  return Status::ok();
}

Result<ExpertLayout> parse_layout(const JsonFields& fields, std::string_view file,
                                  const Dimensions& dims) {
  MOE_ASSIGN_OR_RETURN(const JsonFields formats, fields.object("formats"));
  MOE_RETURN_IF_ERROR(formats.allow_only({"gate_proj", "up_proj", "down_proj"}));
  std::array<WeightFormat, kProjections> chosen;
  for (Projection p : kAllProjections) {
    MOE_ASSIGN_OR_RETURN(const JsonFields members, formats.object(projection_name(p)));
    MOE_RETURN_IF_ERROR(members.allow_only({"format", "group_size", "scale_dtype", "row_order"}));
    MOE_ASSIGN_OR_RETURN(chosen[static_cast<std::size_t>(p)], parse_format_members(members));
  }
  const auto layout = make_expert_layout(dims.hidden, dims.width, chosen);
  if (!layout.has_value()) {
    return fields.error("formats", "cannot hold a model of hidden size " +
                                       std::to_string(dims.hidden) + " and expert width " +
                                       std::to_string(dims.width));
  }
  MOE_RETURN_IF_ERROR(fields.expect_number("expert_size", layout->record_bytes, "the formats"));
  MOE_RETURN_IF_ERROR(fields.expect_number("expert_stride",
                                           align_up(layout->record_bytes, dims.page_size),
                                           "the record padded to the page"));
  MOE_RETURN_IF_ERROR(check_components(fields, file, *layout));
  return *layout;
}

// Applies `"experts": {"17": {"layout": 1, "offset": 4096}}`.
Status parse_expert_overrides(const JsonFields& layer, std::string_view file,
                              const PackManifest& manifest, LayerEntry& entry,
                              std::vector<bool>& has_offset) {
  const nlohmann::json* node = layer.find("experts");
  if (node == nullptr) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const JsonFields experts, layer.object("experts"));
  for (const auto& [key, value] : node->items()) {
    const auto id = parse_index(key, manifest.num_experts);
    if (!id.has_value()) {
      return experts.error(printable(key), "is not an expert of this pack, which has " +
                                               std::to_string(manifest.num_experts));
    }
    MOE_ASSIGN_OR_RETURN(const JsonFields members,
                         JsonFields::of(value, file, experts.path_of(key)));
    MOE_RETURN_IF_ERROR(members.allow_only({"layout", "offset"}));
    ExpertEntry& expert = entry.experts[*id];
    if (members.has("layout")) {
      MOE_ASSIGN_OR_RETURN(
          expert.layout,
          members.number32("layout", 0, static_cast<std::uint32_t>(manifest.layouts.size() - 1)));
    }
    if (members.has("offset")) {
      MOE_ASSIGN_OR_RETURN(expert.offset, members.number("offset", 0, kMaxDataBytes));
      has_offset[*id] = true;
    }
  }
  return Status::ok();
}

// Fills in the offsets that follow from the order and checks that the records tile the file.
Status place_records(const JsonFields& layer, const PackManifest& manifest,
                     const std::vector<bool>& has_offset, LayerEntry& entry) {
  const auto stride_of = [&](const ExpertEntry& expert) {
    return align_up(manifest.layouts[expert.layout].record_bytes, manifest.page_size);
  };
  const auto path_of = [](std::size_t id) { return "experts." + std::to_string(id) + ".offset"; };
  std::uint64_t next = 0;
  for (std::size_t id = 0; id < entry.experts.size(); ++id) {
    ExpertEntry& expert = entry.experts[id];
    if (!has_offset[id]) expert.offset = next;
    if (expert.offset % manifest.page_size != 0) {
      return layer.error(path_of(id), std::to_string(expert.offset) +
                                          " is not a multiple of page_size " +
                                          std::to_string(manifest.page_size));
    }
    next = expert.offset + stride_of(expert);
    if (next > entry.file_size) {
      return layer.error("size", "is " + std::to_string(entry.file_size) + ", but expert " +
                                     std::to_string(id) + " ends at byte " + std::to_string(next));
    }
  }
  std::vector<std::size_t> order(entry.experts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return entry.experts[a].offset < entry.experts[b].offset;
  });
  std::uint64_t end = 0;
  for (std::size_t id : order) {
    const ExpertEntry& expert = entry.experts[id];
    if (expert.offset != end) {
      return layer.error(path_of(id), std::to_string(expert.offset) +
                                          (expert.offset < end ? " overlaps" : " leaves a gap to") +
                                          " the record before it, which ends at byte " +
                                          std::to_string(end));
    }
    end = expert.offset + stride_of(expert);
  }
  if (end != entry.file_size) {
    return layer.error("size", "is " + std::to_string(entry.file_size) +
                                   ", but the records end at byte " + std::to_string(end));
  }
  return Status::ok();
}

Result<LayerEntry> parse_layer(const JsonFields& layer, std::string_view file,
                               const PackManifest& manifest) {
  MOE_RETURN_IF_ERROR(layer.allow_only({"file", "size", "layout", "experts", "checksums"}));
  LayerEntry entry;
  MOE_ASSIGN_OR_RETURN(entry.file, layer.string("file"));
  if (!is_plain_file_name(entry.file)) {
    return layer.error("file", "\"" + printable(entry.file) + "\" is not a plain file name");
  }
  MOE_ASSIGN_OR_RETURN(entry.file_size, layer.number("size", 1, kMaxDataBytes));
  std::uint32_t usual = 0;
  if (layer.has("layout")) {
    MOE_ASSIGN_OR_RETURN(
        usual,
        layer.number32("layout", 0, static_cast<std::uint32_t>(manifest.layouts.size() - 1)));
  }
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* checksums, layer.array("checksums"));
  if (checksums->size() != manifest.num_experts) {
    return layer.error("checksums", "holds " + std::to_string(checksums->size()) +
                                        " entries, but num_experts is " +
                                        std::to_string(manifest.num_experts));
  }
  entry.experts.resize(manifest.num_experts);
  for (std::size_t id = 0; id < entry.experts.size(); ++id) {
    const nlohmann::json& text = (*checksums)[id];
    const auto sum =
        text.is_string() ? parse_checksum(text.get_ref<const std::string&>()) : std::nullopt;
    if (!sum.has_value()) {
      return layer.error("checksums[" + std::to_string(id) + "]",
                         "must be 16 lower-case hex digits");
    }
    entry.experts[id] = ExpertEntry{.offset = 0, .layout = usual, .checksum = *sum};
  }
  std::vector<bool> has_offset(entry.experts.size());
  MOE_RETURN_IF_ERROR(parse_expert_overrides(layer, file, manifest, entry, has_offset));
  MOE_RETURN_IF_ERROR(place_records(layer, manifest, has_offset, entry));
  return entry;
}

Status parse_layouts(const JsonFields& root, std::string_view file, PackManifest& manifest) {
  const Dimensions dims{manifest.hidden_size, manifest.expert_width, manifest.page_size};
  MOE_ASSIGN_OR_RETURN(ExpertLayout usual, parse_layout(root, file, dims));
  manifest.layouts.push_back(usual);
  if (!root.has("layouts")) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, root.array("layouts"));
  for (std::size_t i = 0; i < list->size(); ++i) {
    MOE_ASSIGN_OR_RETURN(
        const JsonFields fields,
        JsonFields::of((*list)[i], file, root.path_of("layouts") + "[" + std::to_string(i) + "]"));
    MOE_RETURN_IF_ERROR(
        fields.allow_only({"expert_size", "expert_stride", "formats", "components"}));
    MOE_ASSIGN_OR_RETURN(ExpertLayout layout, parse_layout(fields, file, dims));
    manifest.layouts.push_back(layout);
  }
  return Status::ok();
}

Status parse_layers(const JsonFields& root, std::string_view file, PackManifest& manifest) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, root.array("layers"));
  if (list->size() != manifest.num_layers) {
    return root.error("layers", "holds " + std::to_string(list->size()) +
                                    " entries, but num_layers is " +
                                    std::to_string(manifest.num_layers));
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string path = "layers[" + std::to_string(i) + "]";
    MOE_ASSIGN_OR_RETURN(const JsonFields layer, JsonFields::of((*list)[i], file, path));
    MOE_ASSIGN_OR_RETURN(const bool is_dense, layer.is_dense());
    if (is_dense) {
      manifest.layers.emplace_back();
      continue;
    }
    MOE_ASSIGN_OR_RETURN(LayerEntry entry, parse_layer(layer, file, manifest));
    if (!names.insert(entry.file).second) {
      return layer.error("file", "\"" + printable(entry.file) + "\" belongs to another layer too");
    }
    manifest.layers.push_back(std::move(entry));
  }
  if (manifest.expert_layers() == 0) return root.error("layers", "has no layer with experts");
  return Status::ok();
}

Status check_version(const JsonFields& root) {
  if (!root.has("format_version")) {
    return root.error("format_version", "is missing; this is not a manifest of moepack",
                      "adopt it with moepack import, or convert the model again");
  }
  return root.expect_version(kPackFormatVersion, "use the moepack that wrote it or convert again");
}

}  // namespace

bool is_plain_file_name(const std::string& name) {
  if (name.empty() || name.size() > 255 || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '/' && c != '\\' && c != ':' && c != 0x7f;
  });
}

std::string layer_file_name(std::uint32_t layer) {
  const std::string number = std::to_string(layer);
  return "layer_" + std::string(number.size() < 2 ? 1 : 0, '0') + number + ".bin";
}

std::string pack_manifest_text(const PackManifest& manifest) {
  std::string text = "{\n";
  text += "  " + number_member("format_version", kPackFormatVersion) + ",\n";
  text += "  " + number_member("num_layers", manifest.num_layers) + ",\n";
  text += "  " + number_member("num_experts", manifest.num_experts) + ",\n";
  text += "  " + number_member("hidden_size", manifest.hidden_size) + ",\n";
  text += "  " + number_member("expert_width", manifest.expert_width) + ",\n";
  text += "  " + number_member("page_size", manifest.page_size) + ",\n";
  text += q3_members(manifest, "  ");
  text += layout_members(manifest.layouts.front(), manifest.page_size, "  ") + ",\n";
  if (manifest.layouts.size() > 1) {
    text += "  \"layouts\": [";
    for (std::size_t i = 1; i < manifest.layouts.size(); ++i) {
      text += i == 1 ? "\n    {\n" : ",\n    {\n";
      text += layout_members(manifest.layouts[i], manifest.page_size, "      ") + "\n    }";
    }
    text += "\n  ],\n";
  }
  text += "  \"layers\": [";
  for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
    text += i == 0 ? "\n    " : ",\n    ";
    text += layer_line(manifest, manifest.layers[i]);
  }
  text += "\n  ],\n  \"source\": {\"name\": " + json_quote(manifest.source.name) +
          ", \"fingerprint\": " + json_quote(checksum_text(manifest.source.fingerprint)) +
          ", \"method\": " + json_quote(manifest.source.method) + "}";
  if (!manifest.report_json.empty()) text += ",\n  \"report\": " + manifest.report_json;
  return text + "\n}\n";
}

Status write_pack_manifest(const std::filesystem::path& directory, const PackManifest& manifest) {
  return write_text_file(directory / kPackManifestName, pack_manifest_text(manifest));
}

Result<PackManifest> parse_pack_manifest(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  MOE_RETURN_IF_ERROR(check_version(root));
  MOE_RETURN_IF_ERROR(root.allow_only({"format_version", "num_layers", "num_experts", "hidden_size",
                                       "expert_width", "page_size", "format", "default_format",
                                       "outlier_layers", "expert_size", "expert_stride", "formats",
                                       "components", "layouts", "layers", "source", "report"}));
  PackManifest manifest;
  MOE_ASSIGN_OR_RETURN(manifest.num_layers, root.number32("num_layers", 1, kMaxModelLayers));
  MOE_ASSIGN_OR_RETURN(manifest.num_experts, root.number32("num_experts", 1, kMaxLayerExperts));
  MOE_ASSIGN_OR_RETURN(manifest.hidden_size, root.number("hidden_size", 1, kMaxModelDimension));
  MOE_ASSIGN_OR_RETURN(manifest.expert_width, root.number("expert_width", 1, kMaxModelDimension));
  MOE_ASSIGN_OR_RETURN(manifest.page_size, root.number("page_size", 1, kMaxPageSize));
  if (!std::has_single_bit(manifest.page_size)) {
    return root.error("page_size",
                      "is " + std::to_string(manifest.page_size) + ", must be a power of two");
  }
  MOE_RETURN_IF_ERROR(parse_layouts(root, file, manifest));
  MOE_RETURN_IF_ERROR(parse_layers(root, file, manifest));
  MOE_RETURN_IF_ERROR(check_q3_members(root, manifest));
  MOE_ASSIGN_OR_RETURN(const JsonFields source, root.object("source"));
  MOE_RETURN_IF_ERROR(source.allow_only({"name", "fingerprint", "method"}));
  MOE_ASSIGN_OR_RETURN(manifest.source.name, source.string("name"));
  MOE_ASSIGN_OR_RETURN(manifest.source.fingerprint, source.checksum("fingerprint"));
  MOE_ASSIGN_OR_RETURN(manifest.source.method, source.string("method"));
  return manifest;
}

Status check_layer_files(const std::filesystem::path& directory, const PackManifest& manifest,
                         std::string_view manifest_name,
                         std::span<const std::filesystem::path> further) {
  for (const LayerEntry& layer : manifest.layers) {
    if (layer.experts.empty()) continue;
    std::filesystem::path path = directory / layer.file;
    for (const std::filesystem::path& other : further) {
      if (is_there(path)) break;
      if (is_there(other / layer.file)) path = other / layer.file;
    }
    MOE_ASSIGN_OR_RETURN(const File file, File::open(path));
    if (file.size() == layer.file_size) continue;
    return corrupt(Where{.file = file.path()},
                   "is " + std::to_string(file.size()) + " bytes long, " +
                       std::string(manifest_name) + " says " + std::to_string(layer.file_size),
                   "copy or convert it again");
  }
  return Status::ok();
}

Result<PackManifest> read_pack_manifest(const std::filesystem::path& directory,
                                        std::span<const std::filesystem::path> further) {
  const std::filesystem::path path = directory / kPackManifestName;
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxManifestBytes));
  MOE_ASSIGN_OR_RETURN(PackManifest manifest, parse_pack_manifest(text, path.string()));
  MOE_RETURN_IF_ERROR(check_layer_files(directory, manifest, kPackManifestName, further));
  return manifest;
}

}  // namespace moepack
