// Configurations of DeepSeek-V3 and of what is made like it.
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/config/model_config.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"

namespace moepack::deepseek_config_test {
namespace {

using nlohmann::json;
using test::expect_error;

constexpr const char* kFile = "config.json";

Result<ParsedConfig> parse(const json& config) { return parse_model_config(config.dump(), kFile); }

// Every number is its own, so that mixed-up keys show.
json deepseek() {
  return json::parse(R"({
    "model_type": "deepseek_v3", "vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 16, "q_lora_rank": 56,
    "kv_lora_rank": 40, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "v_head_dim": 20,
    "n_routed_experts": 12, "n_shared_experts": 2, "num_experts_per_tok": 5, "n_group": 4,
    "topk_group": 3, "norm_topk_prob": true, "routed_scaling_factor": 1.75,
    "first_k_dense_replace": 1, "intermediate_size": 176, "moe_intermediate_size": 48,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 777, "rope_theta": 5000.0,
    "hidden_act": "silu", "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "attention_bias": false, "moe_layer_freq": 1, "rope_scaling": null, "eos_token_id": 3
  })");
}

TEST(DeepseekConfig, EveryNumberIsRead) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(deepseek()));
  const ModelConfig& m = parsed.model;
  EXPECT_EQ(m.model_type, "deepseek_v3");
  EXPECT_EQ(m.num_heads, 6U);
  EXPECT_EQ(m.num_kv_heads, 6U);
  EXPECT_EQ(m.query_rank, 56U);
  EXPECT_EQ(m.kv_rank, 40U);
  EXPECT_EQ(m.head_dim, 40U);  // not the key of this name, which is the rotated part's
  EXPECT_EQ(m.rotary_dim, 16U);
  EXPECT_EQ(m.value_dim, 20U);
  EXPECT_EQ(m.rope_theta, 5000.0);
  EXPECT_TRUE(m.rope_interleaved);
  EXPECT_FALSE(m.yarn.has_value());
  EXPECT_EQ(m.num_experts, 12U);
  EXPECT_EQ(m.experts_per_token, 5U);
  EXPECT_EQ(m.expert_width, 48U);
  EXPECT_EQ(m.shared_expert_width, 96U);
  EXPECT_EQ(m.dense_width, 176U);
  const SigmoidRouterSpec router{.scale = 1.75F, .groups = 4, .kept_groups = 3};
  const LatentAttentionSpec latent{.has_query_rank = true};
  const LayerSpec dense{.mixer = latent, .router = {}, .feed_forward = DenseSpec{}};
  const LayerSpec sparse{
      .mixer = latent,
      .router = router,
      .feed_forward = ExpertsSpec{.has_shared_expert = true, .has_shared_gate = false}};
  EXPECT_EQ(m.layers, (std::vector{dense, sparse, sparse, sparse}));
}

// What transformers' configuration class says of absent keys are the numbers of DeepSeek-V3.
TEST(DeepseekConfig, DefaultsAreThePublishedModel) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse({{"model_type", "deepseek_v3"}}));
  const ModelConfig& m = parsed.model;
  EXPECT_EQ(m.num_layers, 61U);
  EXPECT_EQ(m.hidden_size, 7168U);
  EXPECT_EQ(m.num_heads, 128U);
  EXPECT_EQ(m.query_rank, 1536U);
  EXPECT_EQ(m.kv_rank, 512U);
  EXPECT_EQ(m.head_dim, 192U);
  EXPECT_EQ(m.rotary_dim, 64U);
  EXPECT_EQ(m.value_dim, 128U);
  EXPECT_EQ(m.num_experts, 256U);
  EXPECT_EQ(m.expert_width, 2048U);
  EXPECT_EQ(m.shared_expert_width, 2048U);
  EXPECT_EQ(m.dense_width, 18432U);
  EXPECT_FALSE(has_experts(m.layers[2]));
  EXPECT_TRUE(has_experts(m.layers[3]));
  const auto& router = std::get<SigmoidRouterSpec>(m.layers[3].router);
  EXPECT_EQ(router, (SigmoidRouterSpec{.scale = 2.5F, .groups = 8, .kept_groups = 4}));
}

TEST(DeepseekConfig, KimiK2IsTheSameUnderItsOwnName) {
  json config = deepseek();
  config["model_type"] = "kimi_k2";
  ASSERT_OK_AND_ASSIGN(const ParsedConfig flat, parse(config));
  EXPECT_EQ(flat.model.model_type, "kimi_k2");
  EXPECT_EQ(flat.model.kv_rank, 40U);
  const json wrapped{{"model_type", "kimi_k25"}, {"text_config", config}};
  ASSERT_OK_AND_ASSIGN(const ParsedConfig nested, parse(wrapped));
  EXPECT_EQ(nested.model.layers, flat.model.layers);
}

TEST(DeepseekConfig, PartsMayBeAbsent) {
  json config = deepseek();
  config["q_lora_rank"] = nullptr;
  config["n_shared_experts"] = 0;
  config["first_k_dense_replace"] = 0;
  config["rope_interleave"] = false;
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
  EXPECT_EQ(parsed.model.query_rank, 0U);
  EXPECT_EQ(parsed.model.shared_expert_width, 0U);
  EXPECT_EQ(parsed.model.dense_width, 0U);
  EXPECT_FALSE(parsed.model.rope_interleaved);
  for (const LayerSpec& layer : parsed.model.layers) {
    EXPECT_EQ(layer.mixer, MixerSpec(LatentAttentionSpec{.has_query_rank = false}));
    EXPECT_EQ(layer.feed_forward, FeedForwardSpec(ExpertsSpec{.has_shared_gate = false}));
  }
}

// Cosines and sines times the ratio of the two factors, the softmax times the square of the second.
TEST(DeepseekConfig, YarnScalesTheSoftmax) {
  json config = deepseek();
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 40},
                            {"beta_fast", 32},
                            {"beta_slow", 1},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 0.7},
                            {"original_max_position_embeddings", 4096}};
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
  ASSERT_TRUE(parsed.model.yarn.has_value());
  const double one = 0.1 * std::log(40.0) + 1;
  const double other = 0.07 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(parsed.model.yarn->attention_factor, one / other);
  EXPECT_DOUBLE_EQ(parsed.model.yarn->softmax_factor, other * other);
  EXPECT_EQ(parsed.model.rotary_dim, 16U);
}

TEST(DeepseekConfig, RefusesWhatIsNotComputed) {
  const auto refused = [](const char* key, const json& value) {
    json config = deepseek();
    config[key] = value;
    expect_error(parse(config).status(), StatusCode::kUnsupported, {kFile, key, "not implemented"});
  };
  refused("hidden_act", "gelu");
  refused("attention_bias", true);
  refused("scoring_func", "softmax");
  refused("topk_method", "greedy");
  refused("moe_layer_freq", 2);
  refused("num_key_value_heads", 3);
}

TEST(DeepseekConfig, NumbersThatContradictEachOtherAreNamed) {
  const auto wrong = [](const char* key, const json& value) {
    json config = deepseek();
    config[key] = value;
    expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, key});
  };
  wrong("n_group", 5);
  wrong("n_group", 0);
  wrong("routed_scaling_factor", 0);
  wrong("routed_scaling_factor", -1);
  wrong("routed_scaling_factor", 1e30);
  wrong("n_shared_experts", -1);
  wrong("n_shared_experts", 4000000);
  wrong("first_k_dense_replace", 4);
  wrong("first_k_dense_replace", "none");
  wrong("q_lora_rank", 0);
  wrong("kv_lora_rank", 1.5);
  wrong("v_head_dim", 0);
  wrong("qk_rope_head_dim", -16);
  json groups = deepseek();
  groups["topk_group"] = 5;
  expect_error(parse(groups).status(), StatusCode::kCorrupt, {kFile, "n_group", "topk_group"});
  json config = deepseek();
  config["kv_lora_rank"] = 8000000;
  expect_error(parse(config).status(), StatusCode::kCorrupt,
               {kFile, "num_attention_heads", "absurdly large"});
}

}  // namespace
}  // namespace moepack::deepseek_config_test
