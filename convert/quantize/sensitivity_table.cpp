#include "convert/quantize/sensitivity_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/base/number_text.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMostTableBytes = std::uint64_t{1} << 30;
constexpr const char* kTableFormat = "moepack.sensitivity";

std::string list(const std::vector<double>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += (i == 0 ? "" : ", ") + six_digits(values[i]);
  }
  return text + "]";
}

std::string layer_text(const SensitivityTable& table, std::size_t l) {
  const LayerSensitivity& layer = table.layers[l];
  if (layer.experts() == 0) return "    {\"layer\": " + std::to_string(l) + ", \"dense\": true}";
  std::string text = "    {\"layer\": " + std::to_string(l) + ",\n     \"response\": [" +
                     six_digits(layer.response.per_energy) + ", " +
                     six_digits(layer.response.per_amplitude) +
                     "],\n     \"share\": " + list(layer.share);
  for (const Projection p : kAllProjections) {
    text += ",\n     \"" + std::string(projection_name(p)) + "\": {";
    for (std::size_t w = 0; w < table.bits.size(); ++w) {
      text += (w == 0 ? "\"" : ",\n                   \"") + std::to_string(table.bits[w]) +
              "\": " + list(layer.error[static_cast<std::size_t>(p)][w]);
    }
    text += "}";
  }
  return text + "}";
}

// `count` numbers that are not negative.
Result<std::vector<double>> numbers(const JsonFields& fields, std::string_view key,
                                    std::size_t count) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* array, fields.array(key));
  if (array->size() != count) {
    return fields.error(key, "has " + std::to_string(array->size()) + " numbers, expected are " +
                                 std::to_string(count));
  }
  std::vector<double> out;
  for (const nlohmann::json& node : *array) {
    const double value = node.is_number() ? node.get<double>() : -1;
    if (!(value >= 0) || !std::isfinite(value)) {
      return fields.error(key, "must hold numbers that are not negative");
    }
    out.push_back(value);
  }
  return out;
}

Status parse_head(const JsonFields& root, SensitivityTable& t) {
  MOE_ASSIGN_OR_RETURN(const std::string format, root.string("format"));
  if (format != kTableFormat) {
    return root.error("format", "is no table of sensitivities",
                      "give a file that moepack sensitivity measured");
  }
  MOE_RETURN_IF_ERROR(root.expect_version(kSensitivityFormatVersion,
                                          "use the moepack that wrote it or measure again"));
  MOE_RETURN_IF_ERROR(
      root.allow_only({"format", "format_version", "model", "source_fingerprint", "plan", "method",
                       "num_layers", "expert_layers", "num_experts", "hidden_size", "expert_width",
                       "group_size", "page_size", "bits", "layers"}));
  MOE_ASSIGN_OR_RETURN(t.model, root.string("model"));
  MOE_ASSIGN_OR_RETURN(t.source_fingerprint, root.checksum("source_fingerprint"));
  MOE_ASSIGN_OR_RETURN(t.plan, root.checksum("plan"));
  MOE_ASSIGN_OR_RETURN(t.method, root.string("method"));
  MOE_ASSIGN_OR_RETURN(t.num_layers, root.number32("num_layers", 1, kMaxModelLayers));
  t.expert_layers = t.num_layers;
  if (root.has("expert_layers")) {
    MOE_ASSIGN_OR_RETURN(t.expert_layers, root.number32("expert_layers", 1, t.num_layers));
  }
  MOE_ASSIGN_OR_RETURN(t.num_experts, root.number32("num_experts", 1, kMaxLayerExperts));
  MOE_ASSIGN_OR_RETURN(t.hidden_size, root.number("hidden_size", 1, kMaxModelDimension));
  MOE_ASSIGN_OR_RETURN(t.expert_width, root.number("expert_width", 1, kMaxModelDimension));
  MOE_ASSIGN_OR_RETURN(t.group_size, root.number32("group_size", 1));
  MOE_ASSIGN_OR_RETURN(t.page_size, root.number("page_size", 1, std::uint64_t{1} << 30));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* bits, root.array("bits"));
  for (const nlohmann::json& node : *bits) {
    const std::uint64_t width = node.is_number_unsigned() ? node.get<std::uint64_t>() : 0;
    const bool known = width <= 8 && affine_qformat(static_cast<std::uint32_t>(width)).has_value();
    if (!known || (!t.bits.empty() && width <= t.bits.back())) {
      return root.error("bits", "must hold rising widths of 2, 3, 4, 5, 6 and 8 bits");
    }
    t.bits.push_back(static_cast<std::uint32_t>(width));
  }
  return t.bits.empty() ? root.error("bits", "is empty") : Status::ok();
}

Result<LayerSensitivity> parse_layer(const JsonFields& fields, const SensitivityTable& t,
                                     std::size_t index) {
  LayerSensitivity layer;
  MOE_ASSIGN_OR_RETURN(const bool is_dense, fields.is_dense("layer"));
  if (!is_dense) {
    MOE_RETURN_IF_ERROR(
        fields.allow_only({"layer", "response", "share", "gate_proj", "up_proj", "down_proj"}));
  }
  MOE_RETURN_IF_ERROR(fields.expect_number("layer", index, "its place in the list is"));
  if (is_dense) {
    for (auto& widths : layer.error) widths.resize(t.bits.size());
    return layer;
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<double> response, numbers(fields, "response", 2));
  layer.response = {.per_energy = response[0], .per_amplitude = response[1]};
  MOE_ASSIGN_OR_RETURN(layer.share, numbers(fields, "share", t.num_experts));
  for (const Projection p : kAllProjections) {
    MOE_ASSIGN_OR_RETURN(const JsonFields widths, fields.object(projection_name(p)));
    if (fields.find(projection_name(p))->size() > t.bits.size()) {
      return fields.error(projection_name(p), "has other widths than \"bits\"");
    }
    for (const std::uint32_t bits : t.bits) {
      MOE_ASSIGN_OR_RETURN(std::vector<double> errors,
                           numbers(widths, std::to_string(bits), t.num_experts));
      layer.error[static_cast<std::size_t>(p)].push_back(std::move(errors));
    }
  }
  return layer;
}

}  // namespace

std::string sensitivity_text(const SensitivityTable& t) {
  std::string bits;
  for (const std::uint32_t width : t.bits)
    bits += (bits.empty() ? "" : ", ") + std::to_string(width);
  std::string text =
      "{\n  \"format\": " + json_quote(kTableFormat) +
      ",\n  \"format_version\": " + std::to_string(kSensitivityFormatVersion) +
      ",\n  \"model\": " + json_quote(t.model) +
      ",\n  \"source_fingerprint\": " + json_quote(checksum_text(t.source_fingerprint)) +
      ",\n  \"plan\": " + json_quote(checksum_text(t.plan)) +
      ",\n  \"method\": " + json_quote(t.method) +
      ",\n  \"num_layers\": " + std::to_string(t.num_layers) +
      (t.expert_layers == t.num_layers
           ? std::string()
           : ",\n  \"expert_layers\": " + std::to_string(t.expert_layers)) +
      ",\n  \"num_experts\": " + std::to_string(t.num_experts) +
      ",\n  \"hidden_size\": " + std::to_string(t.hidden_size) +
      ",\n  \"expert_width\": " + std::to_string(t.expert_width) +
      ",\n  \"group_size\": " + std::to_string(t.group_size) +
      ",\n  \"page_size\": " + std::to_string(t.page_size) + ",\n  \"bits\": [" + bits +
      "],\n  \"layers\": [";
  for (std::size_t l = 0; l < t.layers.size(); ++l) {
    text += (l == 0 ? "\n" : ",\n") + layer_text(t, l);
  }
  return text + "\n  ]\n}\n";
}

Result<SensitivityTable> parse_sensitivity(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  SensitivityTable table;
  MOE_RETURN_IF_ERROR(parse_head(root, table));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* layers, root.array("layers"));
  if (layers->size() > table.num_layers) {
    return root.error("layers", "has more entries than num_layers");
  }
  for (std::size_t l = 0; l < layers->size(); ++l) {
    MOE_ASSIGN_OR_RETURN(const JsonFields fields,
                         JsonFields::of((*layers)[l], file, "layers[" + std::to_string(l) + "]"));
    MOE_ASSIGN_OR_RETURN(LayerSensitivity layer, parse_layer(fields, table, l));
    table.layers.push_back(std::move(layer));
  }
  const auto with_experts = static_cast<std::size_t>(
      std::count_if(table.layers.begin(), table.layers.end(),
                    [](const LayerSensitivity& layer) { return layer.experts() > 0; }));
  if (with_experts > table.expert_layers ||
      (table.is_finished() && with_experts < table.expert_layers)) {
    return root.error("layers", "has " + std::to_string(with_experts) +
                                    " layers with experts, expected are " +
                                    std::to_string(table.expert_layers));
  }
  return table;
}

Result<SensitivityTable> read_sensitivity(const std::filesystem::path& file) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMostTableBytes));
  return parse_sensitivity(text, file.string());
}

bool begins_as_sensitivity(const std::filesystem::path& path) {
  constexpr std::size_t kHeadBytes = 256;
  const auto file = File::open(path);
  if (!file.is_ok()) return false;
  std::string head(std::min<std::uint64_t>(file.value().size(), kHeadBytes), '\0');
  if (!file.value().read_at(0, std::as_writable_bytes(std::span(head))).is_ok()) return false;
  return head.find("\"" + std::string(kTableFormat) + "\"") != std::string::npos;
}

double divergence_of(const DivergenceResponse& response, double error) {
  return response.per_energy * error + response.per_amplitude * std::sqrt(error);
}

double divergence_of(const DivergenceResponse& response, double error, double share) {
  return response.per_energy * error + response.per_amplitude * std::sqrt(error * share);
}

}  // namespace moepack
