#include "formats/config/config_deepseek.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <nlohmann/json.hpp>

#include "formats/config/config_parts.h"

namespace moepack {
namespace {

// Above it a factor means nothing: published values are below 20.
constexpr double kMaxScale = 1e6;
constexpr std::uint32_t kMaxSharedExperts = 1024;

// A whole number from 0 on.
Result<std::uint32_t> count_of(const ConfigReader& text, std::string_view key,
                               std::uint32_t fallback, std::uint32_t maximum) {
  const nlohmann::json* value = text.find(key);
  if (value == nullptr) return fallback;
  const bool is_count = value->is_number_unsigned() && value->get<std::uint64_t>() <= maximum;
  if (is_count) return value->get<std::uint32_t>();
  return text.error(key, "is " + ConfigReader::shown(*value) + ", not a whole number from 0 to " +
                             std::to_string(maximum));
}

// The square of YaRN's factor for mscale_all_dim (transformers' yarn_get_mscale); 1 where the
// setting is absent or 0.
Result<double> softmax_factor(const ConfigReader& text, double factor) {
  for (std::string_view key : {"rope_parameters", "rope_scaling"}) {
    MOE_ASSIGN_OR_RETURN(const auto place, text.object(key));
    if (!place.has_value()) continue;
    MOE_ASSIGN_OR_RETURN(const auto mscale, place->optional_number("mscale_all_dim"));
    if (!mscale.has_value()) continue;
    if (std::abs(*mscale) > kMaxScale) return place->error("mscale_all_dim", "is absurdly large");
    const double one = factor <= 1 ? 1 : 0.1 * *mscale * std::log(factor) + 1;
    return one * one;
  }
  return 1.0;
}

Status read_latent_sizes(const ConfigReader& text, const LatentDefaults& defaults,
                         ModelConfig& model, std::uint32_t& nope_dim) {
  MOE_RETURN_IF_ERROR(text.dimension("num_attention_heads", defaults.num_heads, model.num_heads));
  // Every head has a key of its own; transformers divides by this number only.
  std::uint32_t kv_heads = 0;
  MOE_RETURN_IF_ERROR(text.dimension("num_key_value_heads", model.num_heads, kv_heads));
  if (kv_heads != model.num_heads) {
    return text.unsupported_value("num_key_value_heads", std::to_string(kv_heads) + " beside " +
                                                             std::to_string(model.num_heads) +
                                                             " heads of latent attention");
  }
  model.num_kv_heads = kv_heads;
  const bool is_stated = text.json().contains("q_lora_rank");
  MOE_ASSIGN_OR_RETURN(const auto rank, text.optional_dimension("q_lora_rank"));
  model.query_rank = rank.value_or(is_stated ? 0 : defaults.query_rank);
  MOE_RETURN_IF_ERROR(text.dimension("kv_lora_rank", defaults.kv_rank, model.kv_rank));
  MOE_RETURN_IF_ERROR(text.dimension("qk_nope_head_dim", defaults.nope_dim, nope_dim));
  MOE_RETURN_IF_ERROR(text.dimension("v_head_dim", defaults.value_dim, model.value_dim));
  MOE_RETURN_IF_ERROR(text.dimension("qk_rope_head_dim", defaults.rope_dim, model.head_dim));
  const std::uint64_t widest =
      std::max(std::uint64_t{nope_dim} + model.value_dim,
               std::max(std::uint64_t{nope_dim}, std::uint64_t{model.kv_rank}) + model.head_dim);
  if (widest * model.num_heads > kMaxModelDimension) {
    return text.error("num_attention_heads", "times the sizes of a head is absurdly large");
  }
  return Status::ok();
}

}  // namespace

Result<SigmoidRouterSpec> read_sigmoid_router(const ConfigReader& text,
                                              const SigmoidRouterSpec& defaults,
                                              std::uint32_t num_experts) {
  MOE_RETURN_IF_ERROR(text.require_text("scoring_func", "sigmoid"));
  MOE_RETURN_IF_ERROR(text.require_text("topk_method", "noaux_tc"));
  SigmoidRouterSpec router = defaults;
  MOE_ASSIGN_OR_RETURN(const auto renormalise, text.optional_flag("norm_topk_prob"));
  router.renormalise = renormalise.value_or(defaults.renormalise);
  constexpr std::string_view kScale = "routed_scaling_factor";
  MOE_ASSIGN_OR_RETURN(const auto scale, text.optional_number(kScale));
  router.scale = static_cast<float>(scale.value_or(defaults.scale));
  if (!(router.scale > 0 && router.scale <= kMaxScale)) {
    return text.error(kScale, "is " + ConfigReader::shown(*text.find(kScale)) +
                                  ", not a number above 0 and up to 1e6");
  }
  MOE_RETURN_IF_ERROR(text.dimension("n_group", defaults.groups, router.groups));
  MOE_RETURN_IF_ERROR(text.dimension("topk_group", defaults.kept_groups, router.kept_groups));
  if (num_experts % router.groups != 0) {
    return text.error("n_group", "is " + std::to_string(router.groups) +
                                     ", which does not divide " + std::to_string(num_experts) +
                                     " experts");
  }
  if (router.kept_groups > router.groups) {
    return text.error("topk_group", "is " + std::to_string(router.kept_groups) +
                                        ", above n_group " + std::to_string(router.groups));
  }
  return router;
}

Status read_shared_experts(const ConfigReader& text, std::uint32_t default_count,
                           ModelConfig& model) {
  constexpr std::string_view kKey = "n_shared_experts";
  MOE_ASSIGN_OR_RETURN(const std::uint32_t count,
                       count_of(text, kKey, default_count, kMaxSharedExperts));
  const std::uint64_t width = std::uint64_t{count} * model.expert_width;
  if (width > kMaxModelDimension) return text.error(kKey, "makes them absurdly wide");
  model.shared_expert_width = static_cast<std::uint32_t>(width);
  return Status::ok();
}

Status read_leading_dense(const ConfigReader& text, const LeadingDenseDefaults& defaults,
                          const LayerSpec& dense, const LayerSpec& sparse, ModelConfig& model) {
  constexpr std::string_view kKey = "first_k_dense_replace";
  MOE_ASSIGN_OR_RETURN(
      const std::uint32_t count,
      count_of(text, kKey, std::min(defaults.layers, model.num_layers), model.num_layers));
  if (count == model.num_layers) {
    return text.unsupported_value(kKey, std::to_string(count) + ", which leaves no experts,");
  }
  model.layers.assign(model.num_layers, sparse);
  std::fill_n(model.layers.begin(), count, dense);
  if (count == 0) return Status::ok();
  return text.dimension("intermediate_size", defaults.width, model.dense_width);
}

Status read_latent_attention(const ConfigReader& text, const LatentDefaults& defaults,
                             ModelConfig& model) {
  std::uint32_t nope_dim = 0;
  MOE_RETURN_IF_ERROR(read_latent_sizes(text, defaults, model, nope_dim));
  // head_dim is for now that of the part which is rotated, all of it.
  MOE_RETURN_IF_ERROR(read_rope(text, {.theta = defaults.rope_theta}, model));
  model.head_dim += nope_dim;
  MOE_ASSIGN_OR_RETURN(const auto interleaved, text.optional_flag("rope_interleave"));
  model.rope_interleaved = interleaved.value_or(true);
  if (model.yarn.has_value()) {
    MOE_ASSIGN_OR_RETURN(model.yarn->softmax_factor, softmax_factor(text, model.yarn->factor));
  }
  return Status::ok();
}

}  // namespace moepack
