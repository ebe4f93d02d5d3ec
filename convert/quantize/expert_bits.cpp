#include "convert/quantize/expert_bits.h"

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

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
constexpr const char* kFormatName = "moepack.allocation";

std::string layer_text(const LayerExpertBits& layer, std::size_t index) {
  std::string text = "    {\"layer\": " + std::to_string(index);
  if (layer[0].empty()) return text + ", \"dense\": true}";
  for (const Projection p : kAllProjections) {
    text += ",\n     \"" + std::string(projection_name(p)) + "\": [";
    const char* separator = "";
    for (const std::uint8_t bits : layer[static_cast<std::size_t>(p)]) {
      text += separator + std::to_string(bits);
      separator = ", ";
    }
    text += "]";
  }
  return text + "}";
}

Result<double> positive(const JsonFields& fields, std::string_view key) {
  const nlohmann::json* node = fields.find(key);
  const double value = node != nullptr && node->is_number() ? node->get<double>() : -1;
  if (value >= 0 && std::isfinite(value)) return value;
  return fields.error(key, "must be a number that is not negative");
}

Status parse_forecast(const JsonFields& root, ExpertBits& bits) {
  if (!root.has("forecast")) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, root.object("forecast"));
  MOE_RETURN_IF_ERROR(
      fields.allow_only({"pack_bytes", "bits_per_weight", "divergence", "uniform_divergence"}));
  AllocationForecast& f = bits.forecast;
  MOE_ASSIGN_OR_RETURN(f.pack_bytes, fields.number("pack_bytes"));
  MOE_ASSIGN_OR_RETURN(f.bits_per_weight, positive(fields, "bits_per_weight"));
  MOE_ASSIGN_OR_RETURN(f.divergence, positive(fields, "divergence"));
  MOE_ASSIGN_OR_RETURN(f.uniform_divergence, positive(fields, "uniform_divergence"));
  return Status::ok();
}

Status parse_head(const JsonFields& root, ExpertBits& bits) {
  MOE_ASSIGN_OR_RETURN(const std::string format, root.string("format"));
  if (format != kFormatName) {
    return root.error("format", "is no allocation of bits",
                      "give the file that moepack sensitivity -o wrote");
  }
  MOE_RETURN_IF_ERROR(root.expect_version(kAllocationFormatVersion,
                                          "use the moepack that wrote it or allocate again"));
  MOE_RETURN_IF_ERROR(root.allow_only({"format", "format_version", "model", "source_fingerprint",
                                       "method", "num_layers", "num_experts", "group_size",
                                       "target_bytes", "forecast", "layers"}));
  MOE_ASSIGN_OR_RETURN(bits.model, root.string("model"));
  MOE_ASSIGN_OR_RETURN(bits.source_fingerprint, root.checksum("source_fingerprint"));
  MOE_ASSIGN_OR_RETURN(bits.method, root.string("method"));
  MOE_ASSIGN_OR_RETURN(bits.num_layers, root.number32("num_layers", 1, kMaxModelLayers));
  MOE_ASSIGN_OR_RETURN(bits.num_experts, root.number32("num_experts", 1, kMaxLayerExperts));
  MOE_ASSIGN_OR_RETURN(bits.group_size, root.number32("group_size", 1));
  MOE_ASSIGN_OR_RETURN(bits.target_bytes, root.number("target_bytes"));
  return parse_forecast(root, bits);
}

Result<LayerExpertBits> parse_layer(const JsonFields& fields, std::size_t index,
                                    std::uint32_t num_experts) {
  LayerExpertBits layer;
  MOE_ASSIGN_OR_RETURN(const bool is_dense, fields.is_dense("layer"));
  if (!is_dense) {
    MOE_RETURN_IF_ERROR(fields.allow_only({"layer", "gate_proj", "up_proj", "down_proj"}));
  }
  MOE_RETURN_IF_ERROR(fields.expect_number("layer", index, "its place in the list is"));
  if (is_dense) return layer;
  for (const Projection p : kAllProjections) {
    const std::string_view key = projection_name(p);
    MOE_ASSIGN_OR_RETURN(const nlohmann::json* array, fields.array(key));
    if (array->size() != num_experts) {
      return fields.error(key, "has " + std::to_string(array->size()) + " widths, num_experts is " +
                                   std::to_string(num_experts));
    }
    for (const nlohmann::json& node : *array) {
      const std::uint64_t width = node.is_number_unsigned() ? node.get<std::uint64_t>() : 0;
      if (width > 8 || !affine_qformat(static_cast<std::uint32_t>(width)).has_value()) {
        return fields.error(key, "must hold widths of 2, 3, 4, 5, 6 or 8 bits");
      }
      layer[static_cast<std::size_t>(p)].push_back(static_cast<std::uint8_t>(width));
    }
  }
  return layer;
}

}  // namespace

ExpertBits hot_and_cold_bits(const HotExperts& hot, std::uint32_t hot_bits, std::uint32_t cold_bits,
                             std::uint32_t group_size) {
  ExpertBits out;
  out.num_layers = hot.shape.num_layers;
  out.num_experts = hot.shape.num_experts;
  out.group_size = group_size;
  for (const std::vector<std::uint32_t>& ids : hot.layers) {
    std::vector<std::uint8_t> bits(out.num_experts, static_cast<std::uint8_t>(cold_bits));
    for (const std::uint32_t id : ids) bits[id] = static_cast<std::uint8_t>(hot_bits);
    out.layers.push_back({bits, bits, bits});
  }
  return out;
}

std::string expert_bits_text(const ExpertBits& b) {
  std::string text = "{\n  \"format\": " + json_quote(kFormatName) +
                     ",\n  \"format_version\": " + std::to_string(kAllocationFormatVersion) +
                     ",\n  \"model\": " + json_quote(b.model) + ",\n  \"source_fingerprint\": " +
                     json_quote(checksum_text(b.source_fingerprint)) +
                     ",\n  \"method\": " + json_quote(b.method) +
                     ",\n  \"num_layers\": " + std::to_string(b.num_layers) +
                     ",\n  \"num_experts\": " + std::to_string(b.num_experts) +
                     ",\n  \"group_size\": " + std::to_string(b.group_size) +
                     ",\n  \"target_bytes\": " + std::to_string(b.target_bytes) + ",\n";
  if (b.forecast.pack_bytes > 0) {
    text += "  \"forecast\": {\"pack_bytes\": " + std::to_string(b.forecast.pack_bytes) +
            ", \"bits_per_weight\": " + six_digits(b.forecast.bits_per_weight) +
            ", \"divergence\": " + six_digits(b.forecast.divergence) +
            ", \"uniform_divergence\": " + six_digits(b.forecast.uniform_divergence) + "},\n";
  }
  text += "  \"layers\": [";
  for (std::size_t l = 0; l < b.layers.size(); ++l) {
    text += (l == 0 ? "\n" : ",\n") + layer_text(b.layers[l], l);
  }
  return text + "\n  ]\n}\n";
}

Result<ExpertBits> parse_expert_bits(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  ExpertBits bits;
  MOE_RETURN_IF_ERROR(parse_head(root, bits));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* layers, root.array("layers"));
  if (layers->size() != bits.num_layers) {
    return root.error("layers", "has " + std::to_string(layers->size()) +
                                    " entries, num_layers is " + std::to_string(bits.num_layers));
  }
  for (std::size_t l = 0; l < layers->size(); ++l) {
    MOE_ASSIGN_OR_RETURN(const JsonFields fields,
                         JsonFields::of((*layers)[l], file, "layers[" + std::to_string(l) + "]"));
    MOE_ASSIGN_OR_RETURN(LayerExpertBits layer, parse_layer(fields, l, bits.num_experts));
    bits.layers.push_back(std::move(layer));
  }
  return bits;
}

Result<ExpertBits> read_expert_bits(const std::filesystem::path& file) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, kMostBytes));
  return parse_expert_bits(text, file.string());
}

}  // namespace moepack
