#include "convert/source/gguf_config_families.h"

#include <array>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "formats/base/limits.h"
#include "formats/base/number_text.h"

namespace moepack {
namespace {

using FamilyJson = nlohmann::ordered_json;

// llama.cpp's numbers of ARCHITECTURE.expert_gating_func.
constexpr std::uint64_t kGatingSoftmax = 1;
constexpr std::uint64_t kGatingSigmoid = 2;
constexpr std::uint64_t kGatingSoftmaxOfChosen = 3;

// How a family's config.json calls what the metadata say.
struct GgufFamilyRow {
  std::string_view model_type;
  std::string_view num_experts;
  std::string_view expert_width;
  // "" where that is feed_forward_length of files without expert_feed_forward_length.
  std::string_view dense_width;
  std::array<std::uint64_t, 2> gating;  // what expert_gating_func may be; absent is the first
};

constexpr std::array<GgufFamilyRow, 7> kGgufFamilies{{
    {"qwen3_moe",
     "num_experts",
     "moe_intermediate_size",
     "intermediate_size",
     {kGatingSoftmax, kGatingSoftmax}},
    {"olmoe", "num_experts", "intermediate_size", "", {kGatingSoftmax, kGatingSoftmax}},
    {"mixtral", "num_local_experts", "intermediate_size", "", {kGatingSoftmax, kGatingSoftmax}},
    {"glm4_moe",
     "n_routed_experts",
     "moe_intermediate_size",
     "intermediate_size",
     {kGatingSigmoid, kGatingSigmoid}},
    {"deepseek_v3",
     "n_routed_experts",
     "moe_intermediate_size",
     "intermediate_size",
     {kGatingSigmoid, kGatingSigmoid}},
    {"minimax_m2", "num_local_experts", "intermediate_size", "", {kGatingSigmoid, kGatingSigmoid}},
    {"gpt_oss",
     "num_local_experts",
     "intermediate_size",
     "",
     {kGatingSoftmaxOfChosen, kGatingSoftmax}},
}};

Status unknown_computation(const GgufKeys& keys, std::string_view key, const std::string& value) {
  return unsupported(Where{.file = keys.file()},
                     "key " + std::string(key) + " is " + value +
                         ", which asks for a computation that is not known here");
}

Result<std::uint64_t> head_dim_of(const GgufKeys& keys, std::uint64_t hidden, std::uint64_t heads) {
  if (keys.has("attention.key_length")) return keys.dimension("attention.key_length");
  if (hidden % heads == 0) return hidden / heads;
  return keys.error("attention.head_count", "does not divide embedding_length");
}

// Positions of YaRN; llama.cpp stores no factor of attention, which is the usual one unless
// yarn_log_multiplier says otherwise.
Status add_gguf_yarn(const GgufKeys& keys, FamilyJson& rope) {
  rope["rope_type"] = "yarn";
  MOE_ASSIGN_OR_RETURN(const double factor, keys.real("rope.scaling.factor"));
  rope["factor"] = factor;
  MOE_ASSIGN_OR_RETURN(rope["original_max_position_embeddings"],
                       keys.dimension("rope.scaling.original_context_length", kMaxStatedPositions));
  for (const auto& [key, name] : {std::pair{"rope.scaling.yarn_beta_fast", "beta_fast"},
                                  {"rope.scaling.yarn_beta_slow", "beta_slow"}}) {
    if (!keys.has(key)) continue;
    MOE_ASSIGN_OR_RETURN(const double beta, keys.real(key));
    rope[name] = shortest_decimal(static_cast<float>(beta));
  }
  if (!keys.has("rope.scaling.yarn_log_multiplier")) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const double log, keys.real("rope.scaling.yarn_log_multiplier"));
  if (log == 0) return Status::ok();
  // A tenth of mscale_all_dim; mscale, which is not stored, is taken to be the same.
  const double all = 10 * shortest_decimal(static_cast<float>(log));
  rope["mscale"] = rope["mscale_all_dim"] = shortest_decimal(static_cast<float>(all));
  return Status::ok();
}

Result<FamilyJson> gguf_rope(const GgufKeys& keys, bool has_yarn) {
  FamilyJson rope{{"rope_type", "default"}};
  MOE_ASSIGN_OR_RETURN(const double theta, keys.real("rope.freq_base"));
  if (!(theta > 1)) return keys.error("rope.freq_base", "is not above 1");
  rope["rope_theta"] = shortest_decimal(static_cast<float>(theta));
  std::string type = "none";
  if (keys.has("rope.scaling.type")) {
    MOE_ASSIGN_OR_RETURN(type, keys.text("rope.scaling.type"));
  }
  if (type == "yarn" && has_yarn) {
    MOE_RETURN_IF_ERROR(add_gguf_yarn(keys, rope));
    return rope;
  }
  if (type != "none") return unknown_computation(keys, "rope.scaling.type", printable(type, 64));
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    if (!keys.has(key)) continue;
    MOE_ASSIGN_OR_RETURN(const double factor, keys.real(key));
    if (factor != 0 && factor != 1) return unknown_computation(keys, key, std::to_string(factor));
  }
  return rope;
}

Status add_gguf_attention(const GgufKeys& keys, const GgufFamilyRow& family, FamilyJson& config) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t heads, keys.dimension("attention.head_count"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t kv_heads,
                       keys.dimension("attention.head_count_kv", heads));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t head_dim,
                       head_dim_of(keys, config["hidden_size"].get<std::uint64_t>(), heads));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t value_dim,
                       keys.number("attention.value_length", head_dim));
  if (value_dim != head_dim) {
    return keys.error(
        "attention.value_length",
        "is " + std::to_string(value_dim) + ", a head of keys has " + std::to_string(head_dim));
  }
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  config["head_dim"] = head_dim;
  const bool is_gpt_oss = family.model_type == "gpt_oss";
  MOE_ASSIGN_OR_RETURN(config["rope_parameters"], gguf_rope(keys, is_gpt_oss));
  // It was trained so; no key says it.
  if (is_gpt_oss) config["rope_parameters"]["truncate"] = false;
  if (!keys.has("rope.dimension_count")) {
    config["rope_parameters"]["partial_rotary_factor"] = 1.0;
    return Status::ok();
  }
  MOE_ASSIGN_OR_RETURN(const std::uint64_t rotated,
                       keys.dimension("rope.dimension_count", head_dim));
  if (rotated % 2 != 0) return keys.error("rope.dimension_count", "is odd");
  config["rope_parameters"]["partial_rotary_factor"] = gguf_rotary_factor(rotated, head_dim);
  return Status::ok();
}

Status add_gguf_experts(const GgufKeys& keys, const GgufFamilyRow& family, FamilyJson& config) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t experts,
                       keys.dimension("expert_count", kMaxLayerExperts));
  config[std::string(family.num_experts)] = experts;
  MOE_ASSIGN_OR_RETURN(config["num_experts_per_tok"], keys.dimension("expert_used_count", experts));
  const char* width =
      keys.has("expert_feed_forward_length") ? "expert_feed_forward_length" : "feed_forward_length";
  MOE_ASSIGN_OR_RETURN(config[std::string(family.expert_width)], keys.dimension(width));
  if (!family.dense_width.empty() && keys.has("feed_forward_length")) {
    MOE_ASSIGN_OR_RETURN(config[std::string(family.dense_width)],
                         keys.dimension("feed_forward_length"));
  }
  MOE_ASSIGN_OR_RETURN(const std::uint64_t gating,
                       keys.number("expert_gating_func", family.gating.front()));
  if (gating == family.gating[0] || gating == family.gating[1] || gating == 0) {
    return Status::ok();
  }
  return unknown_computation(keys, "expert_gating_func", std::to_string(gating));
}

// What only families with a router of sigmoids and dense layers say.
Status add_glm_experts(const GgufKeys& keys, FamilyJson& config) {
  MOE_ASSIGN_OR_RETURN(config["first_k_dense_replace"],
                       keys.number("leading_dense_block_count", 0));
  MOE_ASSIGN_OR_RETURN(config["n_shared_experts"], keys.number("expert_shared_count", 1));
  MOE_ASSIGN_OR_RETURN(config["n_group"], keys.number("expert_group_count", 1));
  MOE_ASSIGN_OR_RETURN(config["topk_group"], keys.number("expert_group_used_count", 1));
  if (keys.has("expert_weights_scale")) {
    MOE_ASSIGN_OR_RETURN(const double scale, keys.real("expert_weights_scale"));
    config["routed_scaling_factor"] = shortest_decimal(static_cast<float>(scale));
  }
  MOE_ASSIGN_OR_RETURN(const std::uint64_t normed, keys.number("expert_weights_norm", 1));
  config["norm_topk_prob"] = normed != 0;
  config["use_qk_norm"] = keys.model().find("blk.0.attn_q_norm.weight") != nullptr;
  config["attention_bias"] = keys.model().find("blk.0.attn_q.bias") != nullptr;
  return Status::ok();
}

// What shares a row of latent attention. Files of older converters, which have attn_kv_b, say the
// sizes of a head under the keys that others have for those of the row.
Status add_latent_attention(const GgufKeys& keys, FamilyJson& config) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t heads, keys.dimension("attention.head_count"));
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = heads;
  const bool is_newer = keys.has("attention.key_length_mla");
  const char* const key = is_newer ? "attention.key_length_mla" : "attention.key_length";
  const char* const value = is_newer ? "attention.value_length_mla" : "attention.value_length";
  MOE_ASSIGN_OR_RETURN(const std::uint64_t key_dim, keys.dimension(key));
  MOE_ASSIGN_OR_RETURN(config["v_head_dim"], keys.dimension(value));
  MOE_ASSIGN_OR_RETURN(config["kv_lora_rank"], keys.dimension("attention.kv_lora_rank"));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t query_rank, keys.number("attention.q_lora_rank", 0));
  config["q_lora_rank"] = nullptr;
  if (query_rank != 0) config["q_lora_rank"] = query_rank;
  MOE_ASSIGN_OR_RETURN(const std::uint64_t rotated, keys.dimension("rope.dimension_count"));
  if (rotated % 2 != 0) return keys.error("rope.dimension_count", "is odd");
  if (rotated >= key_dim) {
    return keys.error(
        "rope.dimension_count",
        "is " + std::to_string(rotated) + ", and a whole key has " + std::to_string(key_dim));
  }
  config["qk_rope_head_dim"] = rotated;
  config["qk_nope_head_dim"] = key_dim - rotated;
  MOE_ASSIGN_OR_RETURN(config["rope_parameters"], gguf_rope(keys, true));
  return Status::ok();
}

// What llama.cpp takes for absent keys, where that differs from DeepSeek-V3's configuration class.
Status add_deepseek(const GgufKeys& keys, const GgufFamilyRow& family, FamilyJson& config) {
  MOE_RETURN_IF_ERROR(add_latent_attention(keys, config));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t gating, keys.number("expert_gating_func", 0));
  if (gating == 0) {
    return unknown_computation(keys, "expert_gating_func", "absent, so softmax (DeepSeek-V2)");
  }
  MOE_RETURN_IF_ERROR(add_gguf_experts(keys, family, config));
  config["routed_scaling_factor"] = 1.0;
  MOE_RETURN_IF_ERROR(add_glm_experts(keys, config));
  MOE_ASSIGN_OR_RETURN(const std::uint64_t normed, keys.number("expert_weights_norm", 0));
  config["norm_topk_prob"] = normed != 0;
  config.erase("use_qk_norm");
  return Status::ok();
}

Status refuse_dense_and_scaled(const GgufKeys& keys) {
  MOE_RETURN_IF_ERROR(keys.require_number("leading_dense_block_count", 0));
  MOE_RETURN_IF_ERROR(keys.require_number("expert_group_count", 1));
  MOE_RETURN_IF_ERROR(keys.require_number("expert_shared_count", 0));
  if (!keys.has("expert_weights_scale")) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const double scale, keys.real("expert_weights_scale"));
  if (scale == 1 || scale == 0) return Status::ok();
  return unknown_computation(keys, "expert_weights_scale", std::to_string(scale));
}

Status add_gpt_oss(const GgufKeys& keys, FamilyJson& config) {
  MOE_ASSIGN_OR_RETURN(config["sliding_window"],
                       keys.dimension("attention.sliding_window", kMaxStatedPositions));
  config["attention_bias"] = true;
  // Every other layer from the first on, unless a list says something else.
  MOE_RETURN_IF_ERROR(keys.require_number("attention.sliding_window_pattern", 2));
  return Status::ok();
}

}  // namespace

double gguf_rotary_factor(std::uint64_t rotated, std::uint64_t head_dim) {
  const auto wanted = static_cast<double>(rotated);
  const auto dim = static_cast<double>(head_dim);
  double factor = wanted / dim;
  while (std::trunc(factor * dim) < wanted) factor = std::nextafter(factor, 2.0);
  return factor;
}

Status add_gguf_family(const GgufKeys& keys, const Architecture& names,
                       nlohmann::ordered_json& config) {
  for (const GgufFamilyRow& family : kGgufFamilies) {
    if (family.model_type != names.text_model_type) continue;
    if (family.model_type == "deepseek_v3") return add_deepseek(keys, family, config);
    MOE_RETURN_IF_ERROR(add_gguf_attention(keys, family, config));
    MOE_RETURN_IF_ERROR(add_gguf_experts(keys, family, config));
    // llama.cpp divides the weights of qwen3moe by their sum whatever the source said.
    if (family.model_type == "qwen3_moe") config["norm_topk_prob"] = true;
    if (family.model_type == "olmoe") config["norm_topk_prob"] = false;
    if (family.model_type == "gpt_oss") MOE_RETURN_IF_ERROR(add_gpt_oss(keys, config));
    if (family.model_type == "glm4_moe") return add_glm_experts(keys, config);
    return refuse_dense_and_scaled(keys);
  }
  return unsupported(
      Where{.file = keys.file()},
      "models of type " + std::string(names.text_model_type) + " cannot be read from GGUF files");
}

}  // namespace moepack
