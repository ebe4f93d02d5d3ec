#include "formats/config/config_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace moepack {
namespace {

// Frequencies are powers of 1/theta: at 1 or below they would not fall. Published values end at
// 1e8.
constexpr double kMaxRopeTheta = 1e15;

// One number that may stand in several objects. Those that state it must agree.
Result<double> agreed_number(const std::vector<ConfigReader>& places, std::string_view key,
                             double fallback) {
  std::optional<double> agreed;
  for (const ConfigReader& place : places) {
    MOE_ASSIGN_OR_RETURN(const auto value, place.optional_number(key));
    if (!value.has_value()) continue;
    if (agreed.has_value() && *agreed != *value) {
      return place.error(key, "is " + ConfigReader::shown(*place.find(key)) +
                                  ", but stands with another value elsewhere in the file");
    }
    agreed = value;
  }
  return agreed.value_or(fallback);
}

Result<LayerType> layer_type_of(const nlohmann::json& value, const ConfigReader& text) {
  if (value.is_string()) {
    if (value == "linear_attention") return LayerType::kLinearAttention;
    if (value == "full_attention") return LayerType::kFullAttention;
    return text.unsupported_value("layer_types", ConfigReader::shown(value));
  }
  return text.error("layer_types", "holds " + ConfigReader::shown(value) + ", not only strings");
}

}  // namespace

Status read_rope(const ConfigReader& text, const RopeDefaults& defaults, ModelConfig& model) {
  std::vector<ConfigReader> places;
  for (std::string_view key : {"rope_parameters", "rope_scaling"}) {
    MOE_ASSIGN_OR_RETURN(const auto place, text.object(key));
    if (!place.has_value()) continue;
    MOE_RETURN_IF_ERROR(place->require_text("rope_type", "default"));
    MOE_RETURN_IF_ERROR(place->require_text("type", "default"));
    places.push_back(*place);
  }
  places.push_back(text);

  MOE_ASSIGN_OR_RETURN(model.rope_theta, agreed_number(places, "rope_theta", defaults.theta));
  if (!(model.rope_theta > 1 && model.rope_theta <= kMaxRopeTheta)) {
    return text.error("rope_theta", "is " + std::to_string(model.rope_theta) +
                                        ", not a number above 1 and up to 1e15");
  }
  constexpr std::string_view kFactor = "partial_rotary_factor";
  MOE_ASSIGN_OR_RETURN(const double factor,
                       agreed_number(places, kFactor, defaults.partial_rotary_factor));
  if (!(factor > 0 && factor <= 1)) {
    return text.error(kFactor, "is " + std::to_string(factor) + ", not above 0 and up to 1");
  }
  model.rotary_dim = static_cast<std::uint32_t>(static_cast<double>(model.head_dim) * factor);
  if (model.rotary_dim == 0 || model.rotary_dim % 2 != 0) {
    return text.error(kFactor, "makes " + std::to_string(model.rotary_dim) + " of " +
                                   std::to_string(model.head_dim) +
                                   " dimensions rotate; they must form pairs");
  }
  return Status::ok();
}

Status read_layer_types(const ConfigReader& text, std::uint32_t default_interval,
                        ModelConfig& model) {
  std::uint32_t interval = 0;
  MOE_RETURN_IF_ERROR(text.dimension("full_attention_interval", default_interval, interval));
  model.layer_types.clear();
  const nlohmann::json* list = text.find("layer_types");
  if (list == nullptr) {
    for (std::uint32_t layer = 1; layer <= model.num_layers; ++layer) {
      model.layer_types.push_back(layer % interval == 0 ? LayerType::kFullAttention
                                                        : LayerType::kLinearAttention);
    }
    return Status::ok();
  }
  if (!list->is_array()) return text.error("layer_types", "is not a list");
  if (list->size() != model.num_layers) {
    return text.error("layer_types", "lists " + std::to_string(list->size()) +
                                         " layers, num_hidden_layers says " +
                                         std::to_string(model.num_layers));
  }
  for (const nlohmann::json& value : *list) {
    MOE_ASSIGN_OR_RETURN(const LayerType type, layer_type_of(value, text));
    model.layer_types.push_back(type);
  }
  return Status::ok();
}

Status refuse_dense_layers(const ConfigReader& text) {
  const nlohmann::json* dense = text.find("mlp_only_layers");
  if (dense != nullptr && !(dense->is_array() && dense->empty())) {
    return text.unsupported_value("mlp_only_layers", ConfigReader::shown(*dense));
  }
  std::uint32_t step = 0;
  MOE_RETURN_IF_ERROR(text.dimension("decoder_sparse_step", 1, step));
  if (step == 1) return Status::ok();
  return text.unsupported_value("decoder_sparse_step", std::to_string(step));
}

Status read_eos_token_ids(const ConfigReader& object, ModelConfig& model) {
  constexpr std::string_view kKey = "eos_token_id";
  const nlohmann::json* value = object.find(kKey);
  if (value == nullptr) return Status::ok();
  const nlohmann::json ids = value->is_array() ? *value : nlohmann::json::array({*value});
  std::vector<bool> known(model.vocab_size);
  for (std::int32_t id : model.eos_token_ids) known[static_cast<std::size_t>(id)] = true;
  for (const nlohmann::json& id : ids) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= model.vocab_size) {
      return object.error(kKey, "holds " + ConfigReader::shown(id) +
                                    ", not a token id below vocab_size " +
                                    std::to_string(model.vocab_size));
    }
    const auto token = id.get<std::uint32_t>();
    if (!known[token]) model.eos_token_ids.push_back(static_cast<std::int32_t>(token));
    known[token] = true;
  }
  return Status::ok();
}

}  // namespace moepack
