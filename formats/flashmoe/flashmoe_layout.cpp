// layout.json of the flash-moe engines, variants a to d.
#include <algorithm>
#include <array>
#include <optional>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/pack/layout_components.h"
#include "formats/pack/q3_keys.h"
#include "formats/weights/format_json.h"
#include "formats/weights/ggml_types.h"

namespace moepack {
namespace {

constexpr std::size_t kMaxComponents = 9;

using Formats = std::array<WeightFormat, kProjections>;
using ComponentList = std::vector<JsonFields>;

WeightFormat affine(std::uint32_t bits) { return {.id = *affine_qformat(bits), .group_size = 64}; }

std::uint64_t inputs_of(const PackDimensions& dims, Projection p) {
  return p == Projection::kDown ? dims.expert_width : dims.hidden_size;
}

Status check_counts(const JsonFields& root, const PackDimensions& dims) {
  if (root.has("num_layers")) {
    MOE_RETURN_IF_ERROR(root.expect_number("num_layers", dims.num_layers, "config.json"));
  }
  return root.expect_number("num_experts", dims.num_experts, "config.json");
}

Result<ComponentList> parse_components(const JsonFields& fields, std::string_view file,
                                       std::string_view key) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, fields.array(key));
  if (list->empty() || list->size() > kMaxComponents) {
    return fields.error(key, "holds " + std::to_string(list->size()) +
                                 " components, a record has at most " +
                                 std::to_string(kMaxComponents));
  }
  ComponentList components;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string path = fields.path_of(key) + "[" + std::to_string(i) + "]";
    MOE_ASSIGN_OR_RETURN(JsonFields component, JsonFields::of((*list)[i], file, path));
    components.push_back(std::move(component));
  }
  return components;
}

// Finds the component called `name`; the error is about the list at `key` of `fields`.
Result<const JsonFields*> find_component(const JsonFields& fields, std::string_view key,
                                         const ComponentList& components, const std::string& name) {
  for (const JsonFields& component : components) {
    MOE_ASSIGN_OR_RETURN(const std::string found, component.string("name"));
    if (found == name) return &component;
  }
  return fields.error(key, "has no " + name);
}

// The layout of `formats`, after a check that every component of the manifest is where it must be:
// names in the same order, offsets and sizes, and dtypes and shapes where they are stated.
Result<ExpertLayout> checked_layout(const JsonFields& fields, std::string_view components_key,
                                    std::string_view size_key, const ComponentList& components,
                                    const PackDimensions& dims, const Formats& formats) {
  const auto layout = make_expert_layout(dims.hidden_size, dims.expert_width, formats);
  if (!layout.has_value()) {
    return fields.error(components_key, to_string(formats[0]) + " and " + to_string(formats[2]) +
                                            " cannot hold a model of hidden size " +
                                            std::to_string(dims.hidden_size) +
                                            " and expert width " +
                                            std::to_string(dims.expert_width));
  }
  const std::vector<LayoutComponent> expected = layout_components(*layout);
  const std::string why = to_string(formats[0]) + " and the model's dimensions";
  if (components.size() != expected.size()) {
    return fields.error(components_key, "holds " + std::to_string(components.size()) +
                                            " components, but the formats give " +
                                            std::to_string(expected.size()));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const JsonFields& component = components[i];
    MOE_ASSIGN_OR_RETURN(const std::string name, component.string("name"));
    if (name != expected[i].name) {
      return component.error("name", "is \"" + printable(name) + "\", must be " + expected[i].name);
    }
    MOE_RETURN_IF_ERROR(component.expect_number("offset", expected[i].offset, why));
    MOE_RETURN_IF_ERROR(component.expect_number("size", expected[i].size, why));
    if (component.has("shape")) {
      MOE_RETURN_IF_ERROR(expect_shape(component, "shape", expected[i].shape));
    }
    if (!component.has("dtype")) continue;
    MOE_ASSIGN_OR_RETURN(const std::string dtype, component.string("dtype"));
    if (dtype != dtype_name(expected[i].dtype)) {
      return component.error("dtype", "is \"" + printable(dtype) + "\", but " + why + " gives " +
                                          std::string(dtype_name(expected[i].dtype)));
    }
  }
  MOE_RETURN_IF_ERROR(fields.expect_number(size_key, layout->record_bytes, why));
  return *layout;
}

// ---- a: widths and groups from shapes -----------------------------------------------------------

// The second of the two dimensions at "shape".
Result<std::uint64_t> last_dimension(const JsonFields& component) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* shape, component.array("shape"));
  if (shape->size() == 2 && (*shape)[1].is_number_unsigned()) {
    const auto dimension = (*shape)[1].get<std::uint64_t>();
    if (dimension != 0) return dimension;
  }
  return component.error("shape", "must hold two positive integers");
}

Result<WeightFormat> format_from_shapes(const JsonFields& weight, const JsonFields& scales,
                                        std::uint64_t inputs) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t words, last_dimension(weight));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t groups, last_dimension(scales));
  const auto row_bits = checked_mul(words, 32);
  const bool whole = row_bits.has_value() && *row_bits % inputs == 0 && *row_bits / inputs <= 8;
  const auto id =
      whole ? affine_qformat(static_cast<std::uint32_t>(*row_bits / inputs)) : std::nullopt;
  if (!id.has_value()) {
    return weight.error("shape", "is " + std::to_string(words) + " words for " +
                                     std::to_string(inputs) +
                                     " inputs, which is no width of 2, 3, 4, 5, 6 or 8 bits");
  }
  const std::uint64_t group = inputs % groups == 0 ? inputs / groups : 0;
  if (group > 128 || !is_valid_group_size(static_cast<std::uint32_t>(group))) {
    return scales.error("shape", "is " + std::to_string(groups) + " groups for " +
                                     std::to_string(inputs) + " inputs; groups hold 32, 64 or 128");
  }
  MOE_ASSIGN_OR_RETURN(const std::string dtype, scales.string("dtype"));
  const auto scale_type = dtype_from_name(dtype);
  if (scale_type != DType::kBf16 && scale_type != DType::kF16) {
    return json_error(StatusCode::kUnsupported, scales.file(), scales.path_of("dtype"),
                      "scales of type \"" + printable(dtype, 32) + "\" are not read here",
                      "BF16 and F16 are; convert the checkpoint again");
  }
  return WeightFormat{
      .id = *id, .group_size = static_cast<std::uint32_t>(group), .scale_type = *scale_type};
}

Result<Formats> formats_from_shapes(const JsonFields& root, const ComponentList& components,
                                    const PackDimensions& dims) {
  Formats formats;
  for (Projection p : kAllProjections) {
    const std::string name(projection_name(p));
    MOE_ASSIGN_OR_RETURN(const JsonFields* weight,
                         find_component(root, "components", components, name + ".weight"));
    MOE_ASSIGN_OR_RETURN(const JsonFields* scales,
                         find_component(root, "components", components, name + ".scales"));
    MOE_ASSIGN_OR_RETURN(formats[static_cast<std::size_t>(p)],
                         format_from_shapes(*weight, *scales, inputs_of(dims, p)));
  }
  return formats;
}

// ---- d: ggml's blocks by name -------------------------------------------------------------------

// The record that `fields` describes: the whole pack's, or that of an outlier layer.
Result<ExpertLayout> parse_q3_record(const JsonFields& fields, const std::string& file,
                                     const PackDimensions& dims) {
  MOE_ASSIGN_OR_RETURN(const ComponentList components,
                       parse_components(fields, file, "components"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t bytes, fields.number("expert_size"));
  if (is_abandoned_q3_record(dims, bytes)) return abandoned_q3_error(file);
  Formats formats;
  for (Projection p : kAllProjections) {
    const std::string name = std::string(projection_name(p)) + ".weight";
    MOE_ASSIGN_OR_RETURN(const JsonFields* weight,
                         find_component(fields, "components", components, name));
    MOE_ASSIGN_OR_RETURN(const std::string quant, weight->string("quant"));
    const auto type = ggml_type_from_name(quant);
    if (!type.has_value() || type->block_values == 1) {
      return json_error(StatusCode::kUnsupported, file, weight->path_of("quant"),
                        "\"" + printable(quant, 32) + "\" is no block format known here",
                        "a newer moepack may read it");
    }
    formats[static_cast<std::size_t>(p)] = {.id = *type->format};
  }
  return checked_layout(fields, "components", "expert_size", components, dims, formats);
}

// Gives the layers that "outlier_layers" names their own layout.
Status apply_outliers(const JsonFields& root, const std::string& file, const PackDimensions& dims,
                      PackManifest& manifest) {
  const nlohmann::json* node = root.find("outlier_layers");
  if (node == nullptr) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const JsonFields outliers, root.object("outlier_layers"));
  for (const auto& [key, value] : node->items()) {
    const auto layer = parse_index(key, dims.num_layers);
    if (!layer.has_value()) {
      return outliers.error(printable(key), "is not a layer of this model, which has " +
                                                std::to_string(dims.num_layers));
    }
    MOE_ASSIGN_OR_RETURN(const JsonFields fields,
                         JsonFields::of(value, file, outliers.path_of(key)));
    MOE_ASSIGN_OR_RETURN(const ExpertLayout layout, parse_q3_record(fields, file, dims));
    const auto known = std::find(manifest.layouts.begin(), manifest.layouts.end(), layout);
    const auto index = static_cast<std::uint32_t>(known - manifest.layouts.begin());
    if (known == manifest.layouts.end()) manifest.layouts.push_back(layout);
    for (ExpertEntry& expert : manifest.layers[*layer].experts) expert.layout = index;
  }
  return Status::ok();
}

Result<PackManifest> parse_q3(const JsonFields& root, const std::string& file,
                              const PackDimensions& dims) {
  MOE_ASSIGN_OR_RETURN(const std::string format, root.string("format"));
  if (format != kQ3Format) {
    return json_error(StatusCode::kUnsupported, file, "format",
                      "\"" + printable(format, 64) + "\" is no pack format known here",
                      "known is " + std::string(kQ3Format));
  }
  MOE_RETURN_IF_ERROR(check_counts(root, dims));
  MOE_ASSIGN_OR_RETURN(const ExpertLayout usual, parse_q3_record(root, file, dims));
  MOE_ASSIGN_OR_RETURN(PackManifest manifest, uniform_pack(dims, usual));
  MOE_RETURN_IF_ERROR(apply_outliers(root, file, dims, manifest));
  place_without_padding(manifest);
  return manifest;
}

// ---- a and b ------------------------------------------------------------------------------------

Result<PackManifest> parse_affine(const JsonFields& root, const std::string& file,
                                  const PackDimensions& dims) {
  MOE_RETURN_IF_ERROR(check_counts(root, dims));
  MOE_ASSIGN_OR_RETURN(const ComponentList components, parse_components(root, file, "components"));
  Formats formats{affine(4), affine(4), affine(4)};  // what the writer of variant b packs
  const bool states_shapes = std::any_of(components.begin(), components.end(),
                                         [](const JsonFields& c) { return c.has("shape"); });
  if (states_shapes) {
    MOE_ASSIGN_OR_RETURN(formats, formats_from_shapes(root, components, dims));
  }
  MOE_ASSIGN_OR_RETURN(const ExpertLayout layout, checked_layout(root, "components", "expert_size",
                                                                 components, dims, formats));
  return uniform_pack(dims, layout);
}

}  // namespace

Result<PackManifest> parse_flashmoe_layout(std::string_view text, const std::string& file,
                                           const PackDimensions& dims) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  if (root.has("format")) return parse_q3(root, file, dims);
  if (root.has("tiered") || root.has("components_4bit")) {
    return json_error(StatusCode::kUnsupported, file, "tiered",
                      "describes the records of a tiered pack, not where its experts lie",
                      "put " + std::string(kTieredManifestName) + " of the same pack beside it");
  }
  return parse_affine(root, file, dims);
}

Status check_flashmoe_tiered_layout(std::string_view text, const std::string& file,
                                    const PackDimensions& dims) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  if (!root.has("components_4bit")) {
    return root.error("components_4bit",
                      "is missing, though " + std::string(kTieredManifestName) +
                          " beside it describes a tiered pack",
                      "move one of the two manifests away");
  }
  MOE_RETURN_IF_ERROR(check_counts(root, dims));
  for (std::uint32_t bits : {4U, 2U}) {
    const std::string suffix = "_" + std::to_string(bits) + "bit";
    MOE_ASSIGN_OR_RETURN(const ComponentList components,
                         parse_components(root, file, "components" + suffix));
    MOE_RETURN_IF_ERROR(checked_layout(root, "components" + suffix, "expert_size" + suffix,
                                       components, dims, {affine(bits), affine(bits), affine(bits)})
                            .status());
  }
  return Status::ok();
}

}  // namespace moepack
