#include "formats/config/config_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/limits.h"
#include "formats/base/number_text.h"

namespace moepack {
namespace {

constexpr std::uint32_t kMaxConfigLayers = 4096;
// Of routed_scaling_factor; published ones lie between 1 and 16.
constexpr double kMinRouterScale = 1e-6;
constexpr double kMaxRouterScale = 1e6;

Result<LayerType> layer_type_of(const nlohmann::json& value, const ConfigReader& text) {
  if (value.is_string()) {
    if (value == "linear_attention") return LayerType::kLinearAttention;
    if (value == "full_attention") return LayerType::kFullAttention;
    return text.unsupported_value("layer_types", ConfigReader::shown(value));
  }
  return text.error("layer_types", "holds " + ConfigReader::shown(value) + ", not only strings");
}

// num_experts, under either of its names.
Status read_num_experts(const ConfigReader& text, const ExpertDefaults& defaults,
                        ModelConfig& model) {
  const std::string_view key = defaults.num_key;
  MOE_RETURN_IF_ERROR(
      text.dimension(key, defaults.num_experts, model.num_experts, kMaxLayerExperts));
  if (defaults.other_key.empty() || !text.has(defaults.other_key)) return Status::ok();
  std::uint32_t other = 0;
  MOE_RETURN_IF_ERROR(text.dimension(defaults.other_key, 0, other, kMaxLayerExperts));
  if (text.has(key) && other != model.num_experts) {
    return text.error(defaults.other_key, "is " + std::to_string(other) + ", " + std::string(key) +
                                              " " + std::to_string(model.num_experts));
  }
  model.num_experts = other;
  return Status::ok();
}

}  // namespace

Status read_text_model(const ConfigReader& text, const TextModelDefaults& defaults,
                       ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.dimension("vocab_size", defaults.vocab_size, model.vocab_size));
  MOE_RETURN_IF_ERROR(text.dimension("hidden_size", defaults.hidden_size, model.hidden_size));
  MOE_RETURN_IF_ERROR(
      text.dimension("num_hidden_layers", defaults.num_layers, model.num_layers, kMaxConfigLayers));
  MOE_RETURN_IF_ERROR(text.dimension("max_position_embeddings", defaults.max_position_embeddings,
                                     model.max_position_embeddings, kMaxStatedPositions));
  MOE_ASSIGN_OR_RETURN(const auto eps, text.optional_number("rms_norm_eps"));
  model.rms_norm_eps = static_cast<float>(eps.value_or(defaults.rms_norm_eps));
  if (!(model.rms_norm_eps > 0 && model.rms_norm_eps < 1)) {
    return text.error("rms_norm_eps", "is not a float between 0 and 1");
  }
  MOE_ASSIGN_OR_RETURN(const auto tied, text.optional_flag("tie_word_embeddings"));
  model.tie_word_embeddings = tied.value_or(false);
  return Status::ok();
}

Status read_experts(const ConfigReader& text, const ExpertDefaults& defaults, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(read_num_experts(text, defaults, model));
  MOE_RETURN_IF_ERROR(
      text.dimension(defaults.chosen_key, defaults.experts_per_token, model.experts_per_token));
  MOE_RETURN_IF_ERROR(text.dimension(defaults.width_key, defaults.width, model.expert_width));
  if (model.experts_per_token > model.num_experts) {
    return text.error(defaults.chosen_key, "is " + std::to_string(model.experts_per_token) +
                                               ", above num_experts " +
                                               std::to_string(model.num_experts));
  }
  return Status::ok();
}

Status read_attention_heads(const ConfigReader& text, const HeadDefaults& defaults,
                            ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.dimension("num_attention_heads", defaults.num_heads, model.num_heads));
  const std::uint32_t kv_heads =
      defaults.num_kv_heads == 0 ? model.num_heads : defaults.num_kv_heads;
  MOE_RETURN_IF_ERROR(text.dimension("num_key_value_heads", kv_heads, model.num_kv_heads));
  const bool shares = defaults.head_dim == 0;
  if (shares && !text.has("head_dim") && model.hidden_size % model.num_heads != 0) {
    return text.error("num_attention_heads", "is " + std::to_string(model.num_heads) +
                                                 ", which does not divide hidden_size " +
                                                 std::to_string(model.hidden_size));
  }
  const std::uint32_t head_dim = shares ? model.hidden_size / model.num_heads : defaults.head_dim;
  MOE_RETURN_IF_ERROR(text.dimension("head_dim", head_dim, model.head_dim));
  if (model.num_heads % model.num_kv_heads != 0) {
    return text.error("num_attention_heads", "is " + std::to_string(model.num_heads) +
                                                 ", no multiple of num_key_value_heads " +
                                                 std::to_string(model.num_kv_heads));
  }
  // q_proj may hold a query and a gate for every head.
  if (std::uint64_t{model.num_heads} * model.head_dim > kMaxModelDimension / 2) {
    return text.error("head_dim", "times num_attention_heads is absurdly large");
  }
  return Status::ok();
}

Status read_layer_types(const ConfigReader& text, std::uint32_t default_interval,
                        const LayerSpec& full, const LayerSpec& linear, ModelConfig& model) {
  std::uint32_t interval = 0;
  MOE_RETURN_IF_ERROR(text.dimension("full_attention_interval", default_interval, interval));
  model.layers.clear();
  const nlohmann::json* list = text.find("layer_types");
  if (list == nullptr) {
    for (std::uint32_t layer = 1; layer <= model.num_layers; ++layer) {
      model.layers.push_back(layer % interval == 0 ? full : linear);
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
    model.layers.push_back(type == LayerType::kFullAttention ? full : linear);
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

Status read_dense_layers(const ConfigReader& text, const DenseDefaults& defaults,
                         const LayerSpec& layer, ModelConfig& model) {
  MOE_ASSIGN_OR_RETURN(const auto stated, text.optional_number(defaults.key));
  const double first = stated.value_or(defaults.layers);
  if (first < 0 || first >= model.num_layers || first != std::floor(first)) {
    return text.error(defaults.key, "is " + six_digits(first) +
                                        ", not a number of layers below num_hidden_layers " +
                                        std::to_string(model.num_layers));
  }
  model.layers.assign(model.num_layers, layer);
  for (std::size_t l = 0; l < static_cast<std::size_t>(first); ++l) {
    model.layers[l].router = {};
    model.layers[l].feed_forward = DenseSpec{};
  }
  if (first == 0) return Status::ok();
  return text.dimension(defaults.width_key, defaults.width, model.dense_width);
}

Result<SigmoidRouterSpec> read_sigmoid_router(const ConfigReader& text,
                                              const SigmoidRouterDefaults& defaults,
                                              const ModelConfig& model) {
  SigmoidRouterSpec router;
  MOE_ASSIGN_OR_RETURN(const auto renormalise, text.optional_flag("norm_topk_prob"));
  router.renormalise = renormalise.value_or(defaults.renormalise);
  MOE_ASSIGN_OR_RETURN(const double scale, text.number_in("routed_scaling_factor", defaults.scale,
                                                          kMinRouterScale, kMaxRouterScale));
  router.scale = static_cast<float>(scale);
  MOE_RETURN_IF_ERROR(text.dimension("n_group", defaults.groups, router.groups, kMaxRouterGroups));
  MOE_RETURN_IF_ERROR(
      text.dimension("topk_group", defaults.kept_groups, router.kept_groups, kMaxRouterGroups));
  if (model.num_experts % router.groups != 0 || router.kept_groups > router.groups) {
    return text.error("n_group",
                      "is " + std::to_string(router.groups) + ", which does not go with " +
                          std::to_string(model.num_experts) + " experts and topk_group " +
                          std::to_string(router.kept_groups));
  }
  const std::uint32_t choice = model.num_experts / router.groups * router.kept_groups;
  if (model.experts_per_token > choice) {
    return text.error("topk_group", "leaves " + std::to_string(choice) +
                                        " experts to choose from, num_experts_per_tok is " +
                                        std::to_string(model.experts_per_token));
  }
  return router;
}

Status read_window_layers(const ConfigReader& text, const WindowDefaults& defaults,
                          const LayerSpec& layer, ModelConfig& model) {
  constexpr std::string_view kKey = "layer_types";
  const nlohmann::json* list = text.find(kKey);
  if (list != nullptr && (!list->is_array() || list->size() != model.num_layers)) {
    return text.error(kKey, "is no list of num_hidden_layers " + std::to_string(model.num_layers));
  }
  model.layers.assign(model.num_layers, layer);
  for (std::size_t l = 0; l < model.num_layers; ++l) {
    bool slides = (l + 1) % defaults.full_interval != 0;
    if (list != nullptr) {
      const nlohmann::json& type = (*list)[l];
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention") {
        return text.unsupported_value(kKey, ConfigReader::shown(type));
      }
    }
    if (slides) std::get<FullAttentionSpec>(model.layers[l].mixer).window = defaults.window;
  }
  return Status::ok();
}

Status read_prediction_layers(const ConfigReader& text, ModelConfig& model, std::string_view key) {
  MOE_ASSIGN_OR_RETURN(const double layers, text.number_in(key, 0, 0, kMaxConfigLayers));
  if (layers != std::floor(layers)) return text.error(key, "is no whole number");
  model.prediction_layers = static_cast<std::uint32_t>(layers);
  return Status::ok();
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
