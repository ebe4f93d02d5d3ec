// tiered_manifest.json of the flash-moe engines.
#include <array>

#include <nlohmann/json.hpp>

#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/flashmoe/flashmoe_pack.h"

namespace moepack {
namespace {

// Indices into PackManifest::layouts.
constexpr std::uint32_t kHot = 0;   // 4 bits
constexpr std::uint32_t kCold = 1;  // 2 bits

Result<ExpertLayout> tier_layout(const JsonFields& root, const PackDimensions& dims,
                                 std::uint32_t bits) {
  const WeightFormat format{.id = *affine_qformat(bits), .group_size = 64};
  const auto layout =
      make_expert_layout(dims.hidden_size, dims.expert_width, {format, format, format});
  const std::string key = "expert_size_" + std::to_string(bits) + "bit";
  if (!layout.has_value()) {
    return root.error(key, to_string(format) + " cannot hold a model of hidden size " +
                               std::to_string(dims.hidden_size) + " and expert width " +
                               std::to_string(dims.expert_width));
  }
  MOE_RETURN_IF_ERROR(root.expect_number(
      key, layout->record_bytes, to_string(format) + " with the dimensions of config.json"));
  return *layout;
}

// Reads {"offset", "size", "bits"} of one expert, which starts at byte `begin`, and sets its
// layout.
Status parse_expert(const JsonFields& fields, const std::string& file,
                    const std::vector<ExpertLayout>& layouts, std::uint64_t begin,
                    ExpertEntry& expert) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t bits, fields.number("bits"));
  if (bits != 4 && bits != 2) {
    return json_error(StatusCode::kUnsupported, file, fields.path_of("bits"),
                      "is " + std::to_string(bits) + "; tiered packs hold 4 and 2 bits");
  }
  expert.layout = bits == 4 ? kHot : kCold;
  MOE_RETURN_IF_ERROR(fields.expect_number("size", layouts[expert.layout].record_bytes,
                                           std::to_string(bits) + " bits, group 64,"));
  return fields.expect_number("offset", begin, "the record before it");
}

// Reads a layer. `value` is the bare list of experts, or an object that holds it and the file's
// size.
Status parse_layer(const nlohmann::json& value, const std::string& file, const std::string& path,
                   PackManifest& manifest, LayerEntry& layer) {
  const nlohmann::json* list = &value;
  std::string list_path = path;
  if (value.is_object()) {
    MOE_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::of(value, file, path));
    MOE_ASSIGN_OR_RETURN(list, fields.array("experts"));
    list_path = fields.path_of("experts");
  }
  if (!list->is_array() || list->size() != manifest.num_experts) {
    return json_error(StatusCode::kCorrupt, file, list_path,
                      "must be a list of " + std::to_string(manifest.num_experts) +
                          " experts, as config.json says");
  }
  std::uint64_t end = 0;
  for (std::size_t e = 0; e < list->size(); ++e) {
    const std::string expert_path = list_path + "[" + std::to_string(e) + "]";
    MOE_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::of((*list)[e], file, expert_path));
    MOE_RETURN_IF_ERROR(parse_expert(fields, file, manifest.layouts, end, layer.experts[e]));
    end += manifest.layouts[layer.experts[e].layout].record_bytes;
  }
  if (!value.is_object()) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::of(value, file, path));
  return fields.expect_number("file_size", end, "the sum of its records");
}

// The bits of a record if it is one of the engines' two, 4 or 2, else 0.
std::uint32_t tier_of(const ExpertLayout& layout) {
  const WeightFormat& first = layout.projections[0].format;
  for (const ProjectionLayout& part : layout.projections) {
    if (!(part.format == first)) return 0;
  }
  for (const std::uint32_t bits : {4U, 2U}) {
    if (first == WeightFormat{.id = *affine_qformat(bits), .group_size = 64}) return bits;
  }
  return 0;
}

}  // namespace

std::string flashmoe_tiered_text(const PackManifest& pack) {
  std::array<std::uint64_t, 5> sizes{};  // by bits
  for (const std::uint32_t bits : {4U, 2U}) {
    const WeightFormat format{.id = *affine_qformat(bits), .group_size = 64};
    const auto layout =
        make_expert_layout(pack.hidden_size, pack.expert_width, {format, format, format});
    if (!layout.has_value()) return "";
    sizes[bits] = layout->record_bytes;
  }
  std::string layers;
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    if (pack.experts_of(l) != pack.num_experts) return "";
    std::string experts;
    std::uint64_t end = 0;
    for (std::uint32_t e = 0; e < pack.num_experts; ++e) {
      const std::uint32_t bits = tier_of(pack.layout_of(l, e));
      if (bits == 0 || pack.layers[l].experts[e].offset != end) return "";
      experts += (e == 0 ? "" : ", ") + std::string("{\"offset\": ") + std::to_string(end) +
                 ", \"size\": " + std::to_string(sizes[bits]) +
                 ", \"bits\": " + std::to_string(bits) + "}";
      end += sizes[bits];
    }
    if (pack.layers[l].file_size != end) return "";
    layers += (l == 0 ? "\n    \"" : ",\n    \"") + std::to_string(l) + "\": {\"experts\": [" +
              experts + "], \"file_size\": " + std::to_string(end) + "}";
  }
  return "{\n  \"expert_size_4bit\": " + std::to_string(sizes[4]) +
         ",\n  \"expert_size_2bit\": " + std::to_string(sizes[2]) +
         ",\n  \"num_layers\": " + std::to_string(pack.num_layers) +
         ",\n  \"num_experts\": " + std::to_string(pack.num_experts) +
         ",\n  \"threshold\": null,\n  \"gptq_source\": null,\n  \"layers\": {" + layers +
         "\n  }\n}\n";
}

Result<PackManifest> parse_flashmoe_tiered(std::string_view text, const std::string& file,
                                           const PackDimensions& dims) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  if (root.has("num_layers")) {
    MOE_RETURN_IF_ERROR(root.expect_number("num_layers", dims.num_layers, "config.json"));
  }
  if (root.has("num_experts")) {
    MOE_RETURN_IF_ERROR(root.expect_number("num_experts", dims.num_experts, "config.json"));
  }
  MOE_ASSIGN_OR_RETURN(const ExpertLayout hot, tier_layout(root, dims, 4));
  MOE_ASSIGN_OR_RETURN(const ExpertLayout cold, tier_layout(root, dims, 2));
  MOE_ASSIGN_OR_RETURN(PackManifest manifest, uniform_pack(dims, hot));
  manifest.layouts.push_back(cold);
  MOE_ASSIGN_OR_RETURN(const JsonFields layers, root.object("layers"));
  for (const auto& [key, value] : root.find("layers")->items()) {
    const auto layer = parse_index(key, dims.num_layers);
    if (!layer.has_value()) {
      return layers.error(printable(key), "is not a layer of this model, which has " +
                                              std::to_string(dims.num_layers));
    }
    MOE_RETURN_IF_ERROR(
        parse_layer(value, file, layers.path_of(key), manifest, manifest.layers[*layer]));
  }
  place_without_padding(manifest);
  return manifest;
}

}  // namespace moepack
