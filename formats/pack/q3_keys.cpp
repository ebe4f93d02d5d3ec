#include "formats/pack/q3_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "formats/weights/ggml_types.h"

namespace moepack {
namespace {

constexpr std::array<std::string_view, 3> kKeys{"format", "default_format", "outlier_layers"};

// Blocks whose rows follow each other: the engines know nothing of panels.
bool is_of_blocks(const ExpertLayout& layout) {
  return std::all_of(layout.projections.begin(), layout.projections.end(),
                     [](const ProjectionLayout& p) {
                       return is_ggml_block(p.format) && p.format.row_order == RowOrder::kRows;
                     });
}

// One layout and records in order. The engines take the stride from the file's size, so that they
// find padded ones too.
bool is_plain_layer(const LayerEntry& layer) {
  if (layer.experts.empty()) return false;  // a dense layer, which such engines do not know
  const std::uint64_t stride = layer.file_size / layer.experts.size();
  for (std::size_t e = 0; e < layer.experts.size(); ++e) {
    const ExpertEntry& expert = layer.experts[e];
    if (expert.layout != layer.experts.front().layout || expert.offset != e * stride) return false;
  }
  return true;
}

// "iq3_xxs_iq4_xs": gate and up in one, then down.
std::string formats_name(const ExpertLayout& layout) {
  std::string name(qformat_info(layout.of(Projection::kGate).format.id).name);
  for (Projection p : {Projection::kUp, Projection::kDown}) {
    const WeightFormat& format = layout.of(p).format;
    if (p == Projection::kUp && format == layout.of(Projection::kGate).format) continue;
    name += "_" + std::string(qformat_info(format.id).name);
  }
  return name;
}

std::string outlier_text(const ExpertLayout& layout) {
  std::string text = "{\"format\": " + json_quote("q3_outlier_" + formats_name(layout)) +
                     ", \"expert_size\": " + std::to_string(layout.record_bytes) +
                     ", \"components\": [";
  std::string_view separator;
  for (Projection p : kAllProjections) {
    const ProjectionLayout& part = layout.of(p);
    text += separator;
    text += "{\"name\": " + json_quote(std::string(projection_name(p)) + ".weight") +
            ", \"quant\": " + json_quote(quant_name(part.format)) +
            ", \"offset\": " + std::to_string(part.offset) +
            ", \"size\": " + std::to_string(part.bytes.codes()) + "}";
    separator = ", ";
  }
  return text + "]}";
}

}  // namespace

std::string quant_name(const WeightFormat& format) {
  const auto type = is_ggml_block(format) ? ggml_type_of(format.id) : std::nullopt;
  return type.has_value() ? ggml_type_name(*type) : "";
}

std::string q3_members(const PackManifest& manifest, const std::string& indent) {
  const bool readable =
      std::all_of(manifest.layouts.begin(), manifest.layouts.end(), is_of_blocks) &&
      std::all_of(manifest.layers.begin(), manifest.layers.end(), is_plain_layer);
  if (!readable) return "";
  std::string text = indent + "\"format\": " + json_quote(kQ3Format) + ",\n";
  text += indent +
          "\"default_format\": " + json_quote("q3_gguf_" + formats_name(manifest.layouts.front())) +
          ",\n";
  std::string outliers;
  for (std::size_t l = 0; l < manifest.layers.size(); ++l) {
    const std::uint32_t layout = manifest.layers[l].experts.front().layout;
    if (layout == 0) continue;
    outliers += (outliers.empty() ? "\n" : ",\n") + indent + "  " + json_quote(std::to_string(l)) +
                ": " + outlier_text(manifest.layouts[layout]);
  }
  if (outliers.empty()) return text;
  return text + indent + "\"outlier_layers\": {" + outliers + "\n" + indent + "},\n";
}

std::string q3_problem(const PackManifest& manifest) {
  if (std::any_of(manifest.layouts.begin(), manifest.layouts.end(), is_in_panels)) {
    return "its rows are in panels";
  }
  if (q3_members(manifest, "").empty()) {
    return "not all experts of a layer are in the same blocks";
  }
  const auto is_known = [](const ExpertLayout& layout) {
    const std::string name = formats_name(layout);
    return name == "iq3_xxs_iq4_xs" || name == "iq4_xs_q5_k";
  };
  if (std::all_of(manifest.layouts.begin(), manifest.layouts.end(), is_known)) return "";
  return "they know records of IQ3_XXS with IQ4_XS and of IQ4_XS with Q5_K only";
}

Status check_q3_members(const JsonFields& root, const PackManifest& manifest) {
  const bool any =
      std::any_of(kKeys.begin(), kKeys.end(), [&](std::string_view key) { return root.has(key); });
  if (!any) return Status::ok();
  const std::string text = q3_members(manifest, "");
  // The last line ends in a comma.
  const nlohmann::json expected =
      text.empty() ? nlohmann::json::object()
                   : nlohmann::json::parse("{" + text.substr(0, text.rfind(',')) + "}");
  for (std::string_view key : kKeys) {
    const nlohmann::json* found = root.find(key);
    const auto wanted = expected.find(std::string(key));
    const bool same =
        found == nullptr ? wanted == expected.end() : wanted != expected.end() && *wanted == *found;
    if (!same) return root.error(key, "is not what the layouts of the layers give");
  }
  return Status::ok();
}

}  // namespace moepack
