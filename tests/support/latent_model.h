// A checkpoint of deepseek_v3 with random weights: latent attention in every layer, experts in all
// layers but the first, and a prediction block that is left out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/attention_model.h"

namespace moepack::test {

inline nlohmann::json latent_model_config() {
  return nlohmann::json::parse(R"({
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 288,
    "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 3, "num_key_value_heads": 3,
    "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
    "n_group": 4, "topk_group": 2, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "intermediate_size": 160, "moe_intermediate_size": 64,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 4096, "rope_theta": 10000.0,
    "hidden_act": "silu", "eos_token_id": 1
  })");
}

// Creates `directory` and writes config.json and model.safetensors. q_lora_rank may be null.
inline void write_latent_model(const std::filesystem::path& directory,
                               const nlohmann::json& config = latent_model_config()) {
  const auto size = [&](const char* key) { return config[key].get<std::uint64_t>(); };
  const std::uint64_t hidden = size("hidden_size");
  const std::uint64_t heads = size("num_attention_heads");
  const std::uint64_t rotated = size("qk_rope_head_dim");
  const std::uint64_t plain = size("qk_nope_head_dim");
  const std::uint64_t value = size("v_head_dim");
  std::mt19937_64 random(2);
  std::vector<WriterTensor> tensors;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    tensors.push_back(random_tensor(name + ".weight", std::move(shape), random));
  };
  const auto add_network = [&](const std::string& name, std::uint64_t width) {
    add(name + ".gate_proj", {width, hidden});
    add(name + ".up_proj", {width, hidden});
    add(name + ".down_proj", {hidden, width});
  };
  const auto add_attention = [&](const std::string& name) {
    const std::uint64_t rank = size("kv_lora_rank");
    if (config["q_lora_rank"].is_null()) {
      add(name + "q_proj", {heads * (plain + rotated), hidden});
    } else {
      add(name + "q_a_proj", {size("q_lora_rank"), hidden});
      add(name + "q_a_layernorm", {size("q_lora_rank")});
      add(name + "q_b_proj", {heads * (plain + rotated), size("q_lora_rank")});
    }
    add(name + "kv_a_proj_with_mqa", {rank + rotated, hidden});
    add(name + "kv_a_layernorm", {rank});
    add(name + "kv_b_proj", {heads * (plain + value), rank});
    add(name + "o_proj", {hidden, heads * value});
  };
  const auto add_experts = [&](const std::string& name) {
    const std::uint64_t experts = size("n_routed_experts");
    add(name + "gate", {experts, hidden});
    tensors.push_back(random_tensor(name + "gate.e_score_correction_bias", {experts}, random));
    for (std::uint64_t e = 0; e < experts; ++e) {
      add_network(name + "experts." + std::to_string(e), size("moe_intermediate_size"));
    }
    add_network(name + "shared_experts", size("moe_intermediate_size"));
  };
  add("model.embed_tokens", {288, hidden});
  add("lm_head", {288, hidden});
  add("model.norm", {hidden});
  const std::uint64_t layers = size("num_hidden_layers");
  for (std::uint64_t i = 0; i <= layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm", {hidden});
    add(layer + "post_attention_layernorm", {hidden});
    add_attention(layer + "self_attn.");
    if (i < size("first_k_dense_replace")) {
      add_network(layer + "mlp", size("intermediate_size"));
    } else {
      add_experts(layer + "mlp.");
    }
    if (i < layers) continue;
    add(layer + "enorm", {hidden});
    add(layer + "hnorm", {hidden});
    add(layer + "eh_proj", {hidden, 2 * hidden});
    add(layer + "embed_tokens", {288, hidden});
    add(layer + "shared_head.norm", {hidden});
    add(layer + "shared_head.head", {288, hidden});
  }
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", config.dump());
  write_safetensors(directory / "model.safetensors", std::move(tensors));
}

}  // namespace moepack::test
