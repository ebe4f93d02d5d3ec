#include "formats/config/config_latent.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "formats/config/config_parts.h"

namespace moepack {
namespace {

// Every head has a key and a value of its own, made of the row that all share.
Status read_heads(const ConfigReader& text, const LatentDefaults& defaults, ModelConfig& model) {
  MOE_RETURN_IF_ERROR(text.dimension("num_attention_heads", defaults.num_heads, model.num_heads));
  constexpr std::string_view kKey = "num_key_value_heads";
  MOE_RETURN_IF_ERROR(text.dimension(kKey, model.num_heads, model.num_kv_heads));
  if (model.num_kv_heads == model.num_heads) return Status::ok();
  return text.unsupported_value(kKey, std::to_string(model.num_kv_heads) + " beside " +
                                          std::to_string(model.num_heads) +
                                          " heads of latent attention");
}

// Absent means the default, as for other keys, but null means none.
Status read_query_rank(const ConfigReader& text, std::uint32_t fallback, ModelConfig& model) {
  constexpr std::string_view kKey = "q_lora_rank";
  const bool is_null = text.json().contains(kKey) && !text.has(kKey);
  return text.dimension(kKey, is_null ? 0 : fallback, model.query_rank);
}

}  // namespace

Status read_latent_attention(const ConfigReader& text, const LatentDefaults& defaults,
                             ModelConfig& model) {
  MOE_RETURN_IF_ERROR(read_heads(text, defaults, model));
  MOE_RETURN_IF_ERROR(read_query_rank(text, defaults.query_rank, model));
  std::uint32_t plain = 0;
  std::uint32_t rotated = 0;
  MOE_RETURN_IF_ERROR(text.dimension("kv_lora_rank", defaults.kv_rank, model.kv_rank));
  MOE_RETURN_IF_ERROR(text.dimension("qk_nope_head_dim", defaults.plain_dim, plain));
  MOE_RETURN_IF_ERROR(text.dimension("qk_rope_head_dim", defaults.rotary_dim, rotated));
  MOE_RETURN_IF_ERROR(text.dimension("v_head_dim", defaults.value_dim, model.value_dim));
  const std::uint64_t widest =
      std::max(std::uint64_t{plain} + model.value_dim,
               std::max(std::uint64_t{plain}, std::uint64_t{model.kv_rank}) + rotated);
  if (widest * model.num_heads > kMaxModelDimension) {
    return text.error("num_attention_heads", "times the sizes of a head is absurdly large");
  }
  model.head_dim = plain + rotated;
  MOE_ASSIGN_OR_RETURN(const auto interleaved, text.optional_flag("rope_interleave"));
  model.rope_interleaved = interleaved.value_or(true);
  return read_rope(
      text,
      {.theta = defaults.rope_theta, .width = rotated, .has_yarn = true, .scales_softmax = true},
      model);
}

}  // namespace moepack
