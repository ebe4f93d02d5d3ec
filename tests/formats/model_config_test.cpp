#include "formats/config/model_config.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_models.h"

namespace moepack::model_config_test {
namespace {

using nlohmann::json;
using test::expect_error;

constexpr const char* kFile = "config.json";

Result<ParsedConfig> parse(const json& config) { return parse_model_config(config.dump(), kFile); }

// A flat configuration in which every number is its own, so that mixed-up keys show.
json flat() {
  return json::parse(R"({
    "model_type": "qwen3_5_moe_text", "vocab_size": 500, "hidden_size": 96,
    "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 40,
    "num_experts": 10, "num_experts_per_tok": 7, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 160, "linear_num_key_heads": 2, "linear_num_value_heads": 6,
    "linear_key_head_dim": 24, "linear_value_head_dim": 56, "linear_conv_kernel_dim": 5,
    "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": false, "attn_output_gate": true,
    "tie_word_embeddings": true, "max_position_embeddings": 777, "eos_token_id": [3, 499],
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}
  })");
}

json nested() {
  json text = flat();
  text.erase("tie_word_embeddings");
  return {{"model_type", "qwen3_5_moe"}, {"text_config", text}, {"vision_config", {{"depth", 1}}}};
}

void expect_is_flat(const ModelConfig& m) {
  EXPECT_EQ(m.model_type, "qwen3_5_moe_text");
  EXPECT_EQ(m.vocab_size, 500U);
  EXPECT_EQ(m.hidden_size, 96U);
  EXPECT_EQ(m.num_layers, 3U);
  const ExpertsSpec experts{.has_shared_expert = true};
  const LayerSpec linear{.mixer = GatedDeltaNetSpec{}, .feed_forward = experts};
  const LayerSpec full{.mixer = FullAttentionSpec{.has_gate = true}, .feed_forward = experts};
  EXPECT_EQ(m.layers, (std::vector{linear, full, linear}));
  EXPECT_EQ(m.rms_norm_eps, 1e-5F);
  EXPECT_EQ(m.max_position_embeddings, 777U);
  EXPECT_EQ(m.num_experts, 10U);
  EXPECT_EQ(m.experts_per_token, 7U);
  EXPECT_EQ(m.expert_width, 64U);
  EXPECT_EQ(m.shared_expert_width, 160U);
  EXPECT_EQ(m.num_heads, 12U);
  EXPECT_EQ(m.num_kv_heads, 4U);
  EXPECT_EQ(m.head_dim, 40U);
  EXPECT_EQ(m.rotary_dim, 20U);
  EXPECT_EQ(m.rope_theta, 5000.0);
  EXPECT_EQ(m.linear_key_heads, 2U);
  EXPECT_EQ(m.linear_value_heads, 6U);
  EXPECT_EQ(m.linear_key_dim, 24U);
  EXPECT_EQ(m.linear_value_dim, 56U);
  EXPECT_EQ(m.linear_conv_taps, 5U);
  EXPECT_EQ(m.eos_token_ids, (std::vector<std::int32_t>{3, 499}));
}

TEST(ModelConfig, ReadsEveryFieldFlatAndNested) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig one, parse(flat()));
  expect_is_flat(one.model);
  EXPECT_TRUE(one.model.tie_word_embeddings);
  EXPECT_FALSE(one.quantization.has_value());
  ASSERT_OK_AND_ASSIGN(const ParsedConfig two, parse(nested()));
  expect_is_flat(two.model);
  EXPECT_FALSE(two.model.tie_word_embeddings);
}

TEST(ModelConfig, Qwen3NextHasDefaultsOfItsOwn) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed,
                       parse_model_config(R"({"model_type":"qwen3_next"})", kFile));
  const ModelConfig& m = parsed.model;
  EXPECT_EQ(m.model_type, "qwen3_next");
  EXPECT_EQ(m.vocab_size, 151936U);
  EXPECT_EQ(m.num_layers, 48U);
  EXPECT_EQ(m.num_experts, 512U);
  EXPECT_EQ(m.experts_per_token, 10U);
  EXPECT_EQ(m.rope_theta, 1e4);
  EXPECT_EQ(m.rotary_dim, 64U);
  EXPECT_EQ(m.max_position_embeddings, 32768U);
  expect_error(parse({{"model_type", "qwen3_next"}, {"norm_topk_prob", false}}).status(),
               StatusCode::kUnsupported, {"norm_topk_prob"});
}

// As transformers 5 saves it.
json qwen3_moe() {
  return json::parse(R"({
    "model_type": "qwen3_moe", "vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 40, "num_local_experts": 10,
    "num_experts_per_tok": 7, "moe_intermediate_size": 64, "intermediate_size": 999,
    "norm_topk_prob": true, "sliding_window": 4096, "use_sliding_window": false,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 777,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}
  })");
}

TEST(ModelConfig, Qwen3MoeIsReadWhole) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(qwen3_moe()));
  const ModelConfig& m = parsed.model;
  EXPECT_EQ(m.num_experts, 10U);
  EXPECT_EQ(m.experts_per_token, 7U);
  EXPECT_EQ(m.expert_width, 64U);
  EXPECT_EQ(m.shared_expert_width, 0U);
  EXPECT_EQ(m.head_dim, 40U);
  EXPECT_EQ(m.rotary_dim, 40U);
  EXPECT_EQ(m.rope_theta, 5000.0);
  EXPECT_EQ(m.layers, std::vector(3, LayerSpec{}));
  ASSERT_OK_AND_ASSIGN(const ParsedConfig bare, parse({{"model_type", "qwen3_moe"}}));
  EXPECT_EQ(bare.model.num_layers, 24U);
  EXPECT_EQ(bare.model.num_experts, 128U);
  EXPECT_EQ(bare.model.head_dim, 64U);
  EXPECT_EQ(bare.model.rope_theta, 1e4);
  EXPECT_EQ(bare.model.layers[23].router, RouterSpec(SoftmaxRouterSpec{.renormalise = false}));
}

TEST(ModelConfig, Qwen3MoeRefusesWhatItDoesNotCompute) {
  const auto refused = [](const char* key, const json& value, StatusCode code,
                          std::string_view part) {
    json config = qwen3_moe();
    config[key] = value;
    expect_error(parse(config).status(), code, {kFile, key, part});
  };
  refused("use_sliding_window", true, StatusCode::kUnsupported, "true");
  refused("attention_bias", true, StatusCode::kUnsupported, "true");
  refused("mlp_only_layers", json::array({0}), StatusCode::kUnsupported, "a list");
  refused("decoder_sparse_step", 2, StatusCode::kUnsupported, "2");
  refused("hidden_act", "gelu", StatusCode::kUnsupported, "gelu");
  refused("clip_qkv", 8.0, StatusCode::kUnsupported, "8.0");
  refused("rope_scaling", {{"rope_type", "yarn"}}, StatusCode::kUnsupported, "yarn");
  refused("num_local_experts", 0, StatusCode::kCorrupt, "0");
  refused("norm_topk_prob", 1, StatusCode::kCorrupt, "1");
  json config = qwen3_moe();
  config["num_experts"] = 11;
  expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, "num_local_experts", "11"});
  config = qwen3_moe();
  config.erase("head_dim");  // 96 = 12 * 8
  ASSERT_OK_AND_ASSIGN(const ParsedConfig shared, parse(config));
  EXPECT_EQ(shared.model.head_dim, 8U);
  config["num_attention_heads"] = 20;
  expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, "num_attention_heads", "96"});
}

json olmoe() {
  return json::parse(R"({
    "model_type": "olmoe", "vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 12, "num_key_value_heads": 4, "num_experts": 10,
    "num_experts_per_tok": 7, "intermediate_size": 64, "norm_topk_prob": false, "clip_qkv": null,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 777, "rope_theta": 5000.0,
    "rope_scaling": null
  })");
}

TEST(ModelConfig, OlmoeIsReadWhole) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(olmoe()));
  const ModelConfig& m = parsed.model;
  EXPECT_EQ(m.num_experts, 10U);
  EXPECT_EQ(m.expert_width, 64U);
  EXPECT_EQ(m.head_dim, 8U);
  EXPECT_EQ(m.rotary_dim, 8U);
  EXPECT_EQ(m.num_kv_heads, 4U);
  const LayerSpec layer{.mixer = FullAttentionSpec{.norm = QueryKeyNorm::kWholeWidth},
                        .router = SoftmaxRouterSpec{.renormalise = false}};
  EXPECT_EQ(m.layers, std::vector(2, layer));
  ASSERT_OK_AND_ASSIGN(const ParsedConfig bare, parse({{"model_type", "olmoe"}}));
  EXPECT_EQ(bare.model.num_layers, 16U);
  EXPECT_EQ(bare.model.num_experts, 64U);
  EXPECT_EQ(bare.model.num_kv_heads, 16U);
  EXPECT_EQ(bare.model.head_dim, 128U);
  EXPECT_EQ(bare.model.expert_width, 2048U);
  EXPECT_EQ(bare.model.rms_norm_eps, 1e-5F);
  EXPECT_EQ(bare.model.layers.front(), layer);
}

TEST(ModelConfig, OlmoeTakesItsSwitchesAndRefusesOthers) {
  json config = olmoe();
  config["clip_qkv"] = 8;
  config["norm_topk_prob"] = true;
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
  const LayerSpec& layer = parsed.model.layers.front();
  EXPECT_EQ(std::get<FullAttentionSpec>(layer.mixer).clip, 8.0F);
  EXPECT_TRUE(std::get<SoftmaxRouterSpec>(layer.router).renormalise);
  const auto refused = [](const char* key, const json& value, StatusCode code) {
    json changed = olmoe();
    changed[key] = value;
    expect_error(parse(changed).status(), code, {kFile, key});
  };
  for (const json& bad : {json(0), json(-8), json("8"), json(true), json(1e300)}) {
    refused("clip_qkv", bad, StatusCode::kCorrupt);
  }
  refused("sliding_window", 128, StatusCode::kUnsupported);
  refused("attention_bias", true, StatusCode::kUnsupported);
  refused("hidden_act", "gelu", StatusCode::kUnsupported);
}

json glm4_moe() {
  return json::parse(R"({
    "model_type": "glm4_moe", "vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 40, "n_routed_experts": 12,
    "num_experts_per_tok": 5, "moe_intermediate_size": 64, "intermediate_size": 72,
    "n_shared_experts": 2, "first_k_dense_replace": 2, "norm_topk_prob": true,
    "routed_scaling_factor": 2.5, "n_group": 4, "topk_group": 2, "use_qk_norm": true,
    "attention_bias": true, "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 1,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 777, "rope_theta": 5000.0
  })");
}

TEST(ModelConfig, Glm4MoeIsReadWhole) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(glm4_moe()));
  const ModelConfig& m = parsed.model;
  EXPECT_EQ(m.num_experts, 12U);
  EXPECT_EQ(m.shared_expert_width, 128U);
  EXPECT_EQ(m.dense_width, 72U);
  EXPECT_EQ(m.rotary_dim, 20U);
  EXPECT_EQ(m.prediction_layers, 1U);
  const FullAttentionSpec attention{.norm = QueryKeyNorm::kPerHead, .has_bias = true};
  const LayerSpec dense{.mixer = attention, .router = {}, .feed_forward = DenseSpec{}};
  const LayerSpec sparse{
      .mixer = attention,
      .router = SigmoidRouterSpec{.scale = 2.5F, .groups = 4, .kept_groups = 2},
      .feed_forward = ExpertsSpec{.has_shared_expert = true, .has_shared_gate = false}};
  EXPECT_EQ(m.layers, (std::vector{dense, dense, sparse}));
  const auto refused = [](const char* key, const json& value) {
    json config = glm4_moe();
    config[key] = value;
    expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, key});
  };
  refused("first_k_dense_replace", 3);
  refused("first_k_dense_replace", -1);
  refused("first_k_dense_replace", 0.5);
  refused("n_group", 5);
  refused("n_group", 65);
  refused("topk_group", 1);  // 3 experts for 5 choices
  refused("routed_scaling_factor", 0);
  refused("num_nextn_predict_layers", 0.5);
}

json gpt_oss() {
  return json::parse(R"({
    "model_type": "gpt_oss", "vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 40, "num_local_experts": 10,
    "num_experts_per_tok": 4, "intermediate_size": 64, "sliding_window": 9, "swiglu_limit": 6.5,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 777, "rope_theta": 150000,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                     "original_max_position_embeddings": 4096, "truncate": false}
  })");
}

TEST(ModelConfig, GptOssIsReadWhole) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(gpt_oss()));
  const ModelConfig& m = parsed.model;
  FullAttentionSpec attention{
      .norm = QueryKeyNorm::kNone, .has_bias = true, .has_output_bias = true, .has_sinks = true};
  EXPECT_EQ(m.layers[0].mixer, MixerSpec(attention));
  attention.window = 9;
  EXPECT_EQ(m.layers[1].mixer, MixerSpec(attention));
  EXPECT_EQ(m.layers[2].router, RouterSpec(SoftmaxRouterSpec{.has_bias = true}));
  EXPECT_EQ(m.layers[2].feed_forward,
            FeedForwardSpec(ExpertsSpec{.has_biases = true,
                                        .activation = ExpertActivation::kClampedSwiGlu,
                                        .activation_limit = 6.5F}));
  ASSERT_TRUE(m.yarn.has_value());
  EXPECT_EQ(m.yarn->factor, 32.0);
  EXPECT_EQ(m.yarn->original_positions, 4096U);
  EXPECT_FALSE(m.yarn->truncate);
  EXPECT_NEAR(m.yarn->attention_factor, 1.3465735902799727, 1e-12);
  EXPECT_EQ(m.yarn->softmax_factor, 1.0);
  json config = gpt_oss();
  config.erase("layer_types");
  ASSERT_OK_AND_ASSIGN(const ParsedConfig alternating, parse(config));
  EXPECT_TRUE(std::get<FullAttentionSpec>(alternating.model.layers[0].mixer).window.has_value());
  EXPECT_FALSE(std::get<FullAttentionSpec>(alternating.model.layers[1].mixer).window.has_value());
}

TEST(ModelConfig, GptOssRefusesWhatItDoesNotCompute) {
  const auto refused = [](const char* key, const json& value, StatusCode code,
                          std::string_view part) {
    json config = gpt_oss();
    config[key] = value;
    expect_error(parse(config).status(), code, {kFile, part});
  };
  refused("attention_bias", false, StatusCode::kUnsupported, "attention_bias");
  refused("hidden_act", "gelu", StatusCode::kUnsupported, "hidden_act");
  refused("layer_types", {"full_attention"}, StatusCode::kCorrupt, "layer_types");
  refused("layer_types", {"full_attention", "linear_attention", "full_attention"},
          StatusCode::kUnsupported, "linear_attention");
  refused("sliding_window", 0, StatusCode::kCorrupt, "sliding_window");
  refused("swiglu_limit", -7, StatusCode::kCorrupt, "swiglu_limit");
  refused("rope_scaling", {{"rope_type", "longrope"}}, StatusCode::kUnsupported, "longrope");
  refused("rope_scaling", {{"rope_type", "yarn"}, {"factor", 0.5}}, StatusCode::kCorrupt, "factor");
  refused("rope_scaling", {{"rope_type", "yarn"}, {"beta_fast", 0}}, StatusCode::kCorrupt,
          "beta_fast");
  refused("rope_scaling", {{"rope_type", "yarn"}, {"original_max_position_embeddings", 0}},
          StatusCode::kCorrupt, "original_max_position_embeddings");
  refused("rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}}, StatusCode::kCorrupt,
          "rope_scaling");
}

TEST(ModelConfig, MixtralAndMinimaxTakeTheirSwitches) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig mixtral,
                       parse({{"model_type", "mixtral"}, {"sliding_window", 4096}}));
  EXPECT_EQ(mixtral.model.expert_width, 14336U);
  EXPECT_EQ(mixtral.model.head_dim, 128U);
  EXPECT_EQ(std::get<FullAttentionSpec>(mixtral.model.layers[0].mixer).window, 4096U);
  ASSERT_OK_AND_ASSIGN(const ParsedConfig minimax,
                       parse({{"model_type", "minimax_m2"}, {"rotary_dim", 64}}));
  EXPECT_EQ(minimax.model.rotary_dim, 64U);
  EXPECT_EQ(minimax.model.layers[61].router, RouterSpec(SigmoidRouterSpec{}));
  for (const auto& [key, value] : {std::pair<const char*, json>{"use_qk_norm", false},
                                   {"qk_norm_type", "per_head"},
                                   {"use_routing_bias", false},
                                   {"scoring_func", "softmax"}}) {
    expect_error(parse({{"model_type", "minimax_m2"}, {key, value}}).status(),
                 StatusCode::kUnsupported, {kFile, key});
  }
  expect_error(parse({{"model_type", "minimax_m2"}, {"rotary_dim", 33}}).status(),
               StatusCode::kCorrupt, {kFile, "rotary_dim"});
  expect_error(parse({{"model_type", "minimax_m2"}, {"shared_intermediate_size", 8}}).status(),
               StatusCode::kCorrupt, {kFile, "shared_intermediate_size"});
}

// The published 35B-A3B, which leaves out what equals the defaults.
TEST(ModelConfig, AbsentAndNullKeysTakeTheDefaults) {
  for (const char* text :
       {R"({"model_type":"qwen3_5_moe"})", R"({"model_type":"qwen3_5_moe_text"})",
        R"({"model_type":"qwen3_5_moe","text_config":{}})",
        R"({"model_type":"qwen3_5_moe","text_config":{"head_dim":null,
                               "rope_scaling":null,"sliding_window":null,"layer_types":null,
                               "eos_token_id":null,"quantization_config":null}})"}) {
    ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse_model_config(text, kFile));
    const ModelConfig& m = parsed.model;
    EXPECT_EQ(m.vocab_size, 248320U);
    EXPECT_EQ(m.hidden_size, 2048U);
    ASSERT_EQ(m.num_layers, 40U);
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(m.layer_type(i) == LayerType::kFullAttention, i % 4 == 3) << i;
    }
    EXPECT_EQ(m.num_heads, 16U);
    EXPECT_EQ(m.num_kv_heads, 2U);
    EXPECT_EQ(m.head_dim, 256U);
    EXPECT_EQ(m.rotary_dim, 64U);
    EXPECT_EQ(m.rope_theta, 1e7);
    EXPECT_EQ(m.num_experts, 256U);
    EXPECT_EQ(m.experts_per_token, 8U);
    EXPECT_EQ(m.expert_width, 512U);
    EXPECT_EQ(m.shared_expert_width, 512U);
    EXPECT_EQ(m.linear_key_heads, 16U);
    EXPECT_EQ(m.linear_value_heads, 32U);
    EXPECT_EQ(m.linear_key_dim, 128U);
    EXPECT_EQ(m.linear_value_dim, 128U);
    EXPECT_EQ(m.linear_conv_taps, 4U);
    EXPECT_EQ(m.rms_norm_eps, 1e-6F);
    EXPECT_EQ(m.max_position_embeddings, 262144U);
    EXPECT_FALSE(m.tie_word_embeddings);
    EXPECT_TRUE(m.eos_token_ids.empty());
  }
}

TEST(ModelConfig, UnknownTypesAreRefusedWithTheList) {
  expect_error(parse({{"model_type", "llama\n"}}).status(), StatusCode::kUnsupported,
               {kFile, "llama\\x0a", "qwen3_5_moe, qwen3_5_moe_text"});
  expect_error(parse({{"hidden_size", 1}}).status(), StatusCode::kCorrupt, {kFile, "model_type"});
  expect_error(parse({{"model_type", 1}}).status(), StatusCode::kCorrupt, {kFile, "model_type"});
  json config = nested();
  config["text_config"]["model_type"] = "qwen3_5_text";
  expect_error(parse(config).status(), StatusCode::kUnsupported,
               {kFile, "text_config.model_type", "qwen3_5_text"});
}

TEST(ModelConfig, DimensionsMustBeWholeAndSane) {
  for (const char* key :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "num_experts", "num_experts_per_tok",
        "moe_intermediate_size", "shared_expert_intermediate_size", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
        "linear_conv_kernel_dim", "max_position_embeddings"}) {
    for (const json& bad : {json(0), json(-1), json(1.0), json(2.5), json(1e300), json("4"),
                            json(true), json::array({4}), json(1ULL << 31), json(~0ULL)}) {
      json config = nested();
      config["text_config"][key] = bad;
      expect_error(parse(config).status(), StatusCode::kCorrupt,
                   {kFile, "text_config." + std::string(key)});
    }
  }
}

TEST(ModelConfig, NumbersThatContradictEachOtherAreRefused) {
  const auto refused = [](const char* key, const json& value, std::string_view part) {
    json config = flat();
    config[key] = value;
    expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, part});
  };
  refused("num_experts_per_tok", 11, "num_experts_per_tok is 11");
  refused("num_key_value_heads", 5, "num_attention_heads is 12");
  refused("linear_num_key_heads", 4, "linear_num_value_heads is 6");
  refused("num_hidden_layers", 4, "layer_types lists 3");
  refused("layer_types", json::array(), "layer_types lists 0");
  refused("layer_types", "full_attention", "layer_types is not a list");
  refused("layer_types", json::array({1, 2, 3}), "layer_types holds");
  refused("head_dim", 42, "partial_rotary_factor");  // 21 dimensions form no pairs
  refused("head_dim", 1 << 24, "head_dim");          // times 12 heads
  refused("linear_value_head_dim", 1 << 24, "linear");
  refused("full_attention_interval", 0, "full_attention_interval");
  refused("eos_token_id", 500, "eos_token_id");
  refused("eos_token_id", -1, "eos_token_id");
  refused("eos_token_id", "x", "eos_token_id");
  refused("eos_token_id", json::array({1, nullptr}), "eos_token_id");
  refused("rms_norm_eps", 0, "rms_norm_eps");
  refused("rms_norm_eps", 1e-60, "rms_norm_eps");
  refused("rms_norm_eps", "1e-6", "rms_norm_eps");
  refused("rope_theta", 4999.0, "rope_theta");  // rope_parameters says 5000
  refused("partial_rotary_factor", 0.25, "partial_rotary_factor");
  refused("rope_parameters", 3, "rope_parameters");
}

TEST(ModelConfig, SettingsWithoutImplementedMathAreRefusedByName) {
  const auto refused = [](const char* key, const json& value, std::string_view part) {
    for (json config : {flat(), nested()}) {
      (config.contains("text_config") ? config["text_config"] : config)[key] = value;
      expect_error(parse(config).status(), StatusCode::kUnsupported, {kFile, key, part});
    }
  };
  refused("hidden_act", "gelu_tanh", "gelu_tanh");
  refused("attention_bias", true, "true");
  refused("attn_output_gate", false, "false");
  refused("sliding_window", 128, "128");
  refused("clip_qkv", 8.0, "8.0");
  refused("mlp_only_layers", json::array({0}), "a list");
  refused("decoder_sparse_step", 2, "2");
  refused("layer_types", {"linear_attention", "sliding_attention", "linear_attention"}, "sliding");
  refused("rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 5000.0}}, "yarn");
  refused("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}, "linear");
}

// As published configurations state the implemented choice.
TEST(ModelConfig, ImplementedSettingsMayBeStated) {
  json config = flat();
  config["mlp_only_layers"] = json::array();
  config["decoder_sparse_step"] = 1;
  config["sliding_window"] = nullptr;
  EXPECT_OK(parse(config));
}

TEST(ModelConfig, LayerTypesComeFromTheListElseTheInterval) {
  json config = flat();
  config["full_attention_interval"] = 3;  // the list says otherwise and wins
  ASSERT_OK_AND_ASSIGN(const ParsedConfig listed, parse(config));
  EXPECT_EQ(listed.model.layer_type(1), LayerType::kFullAttention);
  EXPECT_EQ(listed.model.layer_type(2), LayerType::kLinearAttention);
  config.erase("layer_types");
  ASSERT_OK_AND_ASSIGN(const ParsedConfig spaced, parse(config));
  EXPECT_EQ(spaced.model.layer_type(1), LayerType::kLinearAttention);
  EXPECT_EQ(spaced.model.layer_type(2), LayerType::kFullAttention);
}

TEST(ModelConfig, RopeIsFoundWhereverVersionsPutIt) {
  std::vector<json> forms;
  json config = flat();
  config.erase("rope_parameters");
  config["rope_scaling"] = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  config["partial_rotary_factor"] = 0.5;
  forms.push_back(config);
  config["rope_scaling"] = nullptr;
  config["rope_theta"] = 5000;
  forms.push_back(config);
  config["rope_parameters"] = {{"type", "default"}, {"rope_theta", 5000}};
  forms.push_back(config);
  for (const json& form : forms) {
    ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(form));
    EXPECT_EQ(parsed.model.rope_theta, 5000.0);
    EXPECT_EQ(parsed.model.rotary_dim, 20U);
  }
}

TEST(ModelConfig, RopeNumbersMustBeSane) {
  for (const json& theta : {json(0), json(-5.0), json(1), json(1e16), json("1e7"), json(true)}) {
    json config = flat();
    config["rope_parameters"]["rope_theta"] = theta;
    expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, "rope_theta"});
  }
  for (const json& factor : {json(0), json(-0.5), json(1.01), json(0.01), json("0.5")}) {
    json config = flat();
    config["rope_parameters"]["partial_rotary_factor"] = factor;
    expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, "partial_rotary_factor"});
  }
}

TEST(ModelConfig, TiedEmbeddingsComeFromEitherLevel) {
  json config = nested();
  config["tie_word_embeddings"] = true;
  ASSERT_OK_AND_ASSIGN(const ParsedConfig outer, parse(config));
  EXPECT_TRUE(outer.model.tie_word_embeddings);
  config["text_config"]["tie_word_embeddings"] = false;
  expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, "tie_word_embeddings"});
}

TEST(ModelConfig, EosIdsOfBothLevelsAreJoined) {
  json config = nested();
  config["eos_token_id"] = 7;
  config["text_config"]["eos_token_id"] = {9, 7, 9};
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
  EXPECT_EQ(parsed.model.eos_token_ids, (std::vector<std::int32_t>{7, 9}));
}

TEST(ModelConfig, OneBadByteIsOneLine) {
  for (const json& config : {nested(), qwen3_moe(), olmoe(), glm4_moe(), gpt_oss()}) {
    test::drill_truncation(config.dump(), [](std::string_view text) {
      return parse_model_config(text, kFile).status();
    });
  }
  expect_error(parse_model_config("[]", kFile).status(), StatusCode::kCorrupt, {kFile, "object"});
  expect_error(parse_model_config(R"({"model_type":"a","model_type":"b"})", kFile).status(),
               StatusCode::kCorrupt, {kFile, "stands twice"});
}

json with_block(const json& block) {
  json config = flat();
  config["quantization"] = block;
  return config;
}

TEST(Quantization, ReadsTheBlockAndItsOverrides) {
  const json block = json::parse(R"({"group_size":64,"bits":4,"mode":"affine",
      "m.z":{"group_size":32,"bits":8,"mode":"affine"},"m.b":false,"m.c":true,"m.a":{"bits":6}})");
  json config = with_block(block);
  config["quantization_config"] = block;
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
  ASSERT_TRUE(parsed.quantization.has_value());
  const QuantizationConfig& q = *parsed.quantization;
  const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 64};
  EXPECT_EQ(q.default_format, q4);
  EXPECT_EQ(q.format_of("anything"), q4);
  EXPECT_EQ(q.format_of("m.c"), q4);
  EXPECT_EQ(q.format_of("m.b"), std::nullopt);
  EXPECT_EQ(q.format_of("m.a"), (WeightFormat{.id = QFormatId::kQ6, .group_size = 64}));
  EXPECT_EQ(q.format_of("m.z"), (WeightFormat{.id = QFormatId::kQ8, .group_size = 32}));
  ASSERT_EQ(q.overrides.size(), 3U);
  EXPECT_EQ(q.overrides[0].module, "m.a");
}

// mlx.nn.quantize gives a module's own object the defaults of the mode, not the block's numbers.
TEST(Quantization, AModulesObjectStandsAlone) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed,
                       parse(with_block({{"group_size", 128}, {"bits", 3}, {"m", {{"bits", 8}}}})));
  EXPECT_EQ(parsed.quantization->format_of("m"),
            (WeightFormat{.id = QFormatId::kQ8, .group_size = 64}));
  EXPECT_EQ(parsed.quantization->format_of("n"),
            (WeightFormat{.id = QFormatId::kQ3, .group_size = 128}));
}

TEST(Quantization, EitherNameWillDo) {
  for (const char* key : {"quantization", "quantization_config"}) {
    for (const bool inside : {false, true}) {
      json config = nested();
      (inside ? config["text_config"] : config)[key] = {{"group_size", 32}, {"bits", 2}};
      ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
      EXPECT_EQ(parsed.quantization->default_format,
                (WeightFormat{.id = QFormatId::kQ2, .group_size = 32}));
    }
  }
}

TEST(Quantization, BlocksThatDifferAreRefused) {
  json config = with_block({{"group_size", 64}, {"bits", 4}});
  config["quantization_config"] = {{"group_size", 64}, {"bits", 4}, {"m", false}};
  expect_error(parse(config).status(), StatusCode::kCorrupt,
               {kFile, "quantization_config", "differs"});
  config["quantization_config"] = {{"bits", 4}};  // 64 is the default
  EXPECT_OK(parse(config));
}

json with_method(const json& block) {
  json config = nested();
  config["quantization_config"] = block;
  return config;
}

TEST(Quantization, Fp8TellsTheSizeOfItsBlocks) {
  const json block{
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 64}}, {"more", true}};
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(with_method(block)));
  EXPECT_FALSE(parsed.quantization.has_value());
  EXPECT_EQ(parsed.source_quantization,
            (SourceQuantization{.method = "fp8", .block_rows = 128, .block_cols = 64}));
  ASSERT_OK_AND_ASSIGN(const ParsedConfig bare, parse(with_method({{"quant_method", "fp8"}})));
  EXPECT_EQ(bare.source_quantization, SourceQuantization{.method = "fp8"});
  for (const json& size : {json(128), json{128}, json{128, 0}, json{128, -1}, json{128, 1.5}}) {
    json wrong = block;
    wrong["weight_block_size"] = size;
    expect_error(parse(with_method(wrong)).status(), StatusCode::kCorrupt,
                 {kFile, "quantization_config.weight_block_size"});
  }
  json other = block;
  other["fmt"] = "e5m2";
  expect_error(parse(with_method(other)).status(), StatusCode::kUnsupported,
               {kFile, "quantization_config.fmt", "e5m2"});
}

TEST(Quantization, CompressedTensorsIsReadByItsFormat) {
  const json weights{{"num_bits", 4}, {"type", "int"}, {"group_size", 32}};
  const json block{{"quant_method", "compressed-tensors"},
                   {"format", "pack-quantized"},
                   {"config_groups", {{"group_0", {{"weights", weights}}}}}};
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(with_method(block)));
  EXPECT_EQ(parsed.source_quantization,
            (SourceQuantization{
                .method = "compressed-tensors", .code_widths = 1U << 4U, .group_size = 32}));
  json blocks = block;
  blocks["format"] = "float-quantized";
  blocks["config_groups"]["group_0"]["weights"] = {
      {"num_bits", 8}, {"type", "float"}, {"block_structure", {16, 32}}};
  ASSERT_OK_AND_ASSIGN(const ParsedConfig with_blocks, parse(with_method(blocks)));
  EXPECT_EQ(with_blocks.source_quantization.block_rows, 16U);
  EXPECT_EQ(with_blocks.source_quantization.block_cols, 32U);
  blocks["config_groups"]["group_1"] = blocks["config_groups"]["group_0"];
  blocks["config_groups"]["group_1"]["weights"]["block_structure"] = {8, 32};
  expect_error(parse(with_method(blocks)).status(), StatusCode::kUnsupported,
               {kFile, "config_groups.group_1"});
  const auto refused = [&](const char* key, const json& value, const char* part) {
    json wrong = block;
    wrong[key] = value;
    expect_error(parse(with_method(wrong)).status(), StatusCode::kUnsupported, {kFile, part});
  };
  refused("format", "marlin-24", "marlin-24");
  refused("format", nullptr, "quantization_config.format");
  refused("config_groups", {{"g", {{"weights", {{"num_bits", 1}, {"type", "int"}}}}}},
          "config_groups.g.weights.num_bits");
}

TEST(Quantization, OtherMethodsAreRefusedByName) {
  for (const char* method : {"hqq", "bitsandbytes", "quark", "aqlm", "GPTQ"}) {
    json config = nested();
    config["quantization_config"] = {{"quant_method", method}, {"bits", 4}, {"group_size", 64}};
    expect_error(parse(config).status(), StatusCode::kUnsupported,
                 {kFile, "quantization_config.quant_method", method});
  }
  for (const char* mode : {"mxfp6", "MXFP4", "int4"}) {
    expect_error(parse(with_block({{"group_size", 32}, {"bits", 4}, {"mode", mode}})).status(),
                 StatusCode::kUnsupported, {kFile, "quantization.mode", mode});
    expect_error(parse(with_block({{"bits", 4}, {"a.b", {{"mode", mode}}}})).status(),
                 StatusCode::kUnsupported, {kFile, "quantization.a.b.mode", mode});
  }
}

// A module's own object stands alone: without a mode it is affine, whatever the block says.
TEST(Quantization, ModesOfMlx) {
  const json block{{"mode", "nvfp4"},
                   {"bits", 4},
                   {"group_size", 16},
                   {"m.gate", {{"bits", 8}, {"group_size", 64}}},
                   {"m.up", {{"mode", "nvfp4"}, {"global_scale", true}}},
                   {"m.down", {{"mode", "mxfp8"}}}};
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(with_block(block)));
  const QuantizationConfig& q = *parsed.quantization;
  EXPECT_EQ(q.default_format, WeightFormat{.id = QFormatId::kNvfp4});
  EXPECT_EQ(q.format_of("m.gate"), (WeightFormat{.id = QFormatId::kQ8, .group_size = 64}));
  EXPECT_EQ(q.format_of("m.up"), WeightFormat{.id = QFormatId::kNvfp4Scaled});
  EXPECT_EQ(q.format_of("m.down"), WeightFormat{.id = QFormatId::kMxfp8});
  ASSERT_OK_AND_ASSIGN(const ParsedConfig bare, parse(with_block({{"mode", "mxfp4"}})));
  EXPECT_EQ(bare.quantization->default_format, WeightFormat{.id = QFormatId::kMxfp4});
}

TEST(Quantization, MethodsWithZerosAndOrders) {
  ASSERT_OK_AND_ASSIGN(const ParsedConfig first, parse(with_method({{"quant_method", "gptq"},
                                                                    {"bits", 4},
                                                                    {"group_size", 128},
                                                                    {"sym", true},
                                                                    {"desc_act", false}})));
  EXPECT_EQ(first.source_quantization, (SourceQuantization{.method = "gptq",
                                                           .code_widths = 1U << 4U,
                                                           .group_size = 128,
                                                           .symmetric = true,
                                                           .zeros_less_one = true}));
  ASSERT_OK_AND_ASSIGN(const ParsedConfig second,
                       parse(with_method({{"quant_method", "gptq"},
                                          {"bits", 8},
                                          {"group_size", -1},
                                          {"desc_act", true},
                                          {"checkpoint_format", "gptq_v2"}})));
  EXPECT_EQ(second.source_quantization,
            (SourceQuantization{.method = "gptq", .code_widths = 1U << 8U, .any_order = true}));
  ASSERT_OK_AND_ASSIGN(
      const ParsedConfig awq,
      parse(with_method({{"quant_method", "awq"}, {"version", "gemm"}, {"group_size", 32}})));
  EXPECT_EQ(awq.source_quantization,
            (SourceQuantization{.method = "awq", .code_widths = 1U << 4U, .group_size = 32}));
}

// hf_quant_config.json, alone and beside a block that says the same or something else.
TEST(Quantization, ModelOptsOwnFile) {
  const std::string own = R"({"producer":{"name":"modelopt"},
      "quantization":{"quant_algo":"NVFP4","group_size":16,"exclude_modules":["lm_head"]}})";
  ParsedConfig config;
  ASSERT_OK(add_quantization_file(own, "own", config));
  EXPECT_EQ(config.source_quantization, SourceQuantization{.method = "modelopt"});
  ASSERT_OK(add_quantization_file(own, "own", config));
  config.source_quantization.method = "fp8";
  expect_error(add_quantization_file(own, "own", config), StatusCode::kCorrupt, {"own", "fp8"});
  for (const char* wrong : {"[]", "{}", R"({"quantization":1})", R"({"quantization":{}})",
                            R"({"quantization":{"quant_algo":"W4A8_AWQ"}})",
                            R"({"quantization":{"quant_algo":"NVFP4","group_size":32}})", "{"}) {
    ParsedConfig empty;
    const Status status = add_quantization_file(wrong, "own", empty);
    ASSERT_FALSE(status.is_ok()) << wrong;
    EXPECT_NE(status.message().find("own"), std::string::npos) << wrong;
  }
}

TEST(Quantization, OtherNumbersAndFormsAreRefused) {
  const auto refused = [](const json& block, StatusCode code, std::string_view part) {
    expect_error(parse(with_block(block)).status(), code, {kFile, part});
  };
  refused({{"bits", 7}}, StatusCode::kUnsupported, "quantization.bits 7");
  refused({{"bits", 16}}, StatusCode::kUnsupported, "quantization.bits 16");
  refused({{"group_size", 16}}, StatusCode::kUnsupported, "quantization.group_size 16");
  refused({{"bits", 0}}, StatusCode::kCorrupt, "quantization.bits");
  refused({{"bits", "4"}}, StatusCode::kCorrupt, "quantization.bits");
  refused({{"group_size", -64}}, StatusCode::kCorrupt, "quantization.group_size");
  refused({{"m", {{"bits", 1}}}}, StatusCode::kUnsupported, "quantization.m.bits 1");
  refused({{"m", {{"sym", true}}}}, StatusCode::kUnsupported, "quantization.m.sym");
  refused({{"m", 4}}, StatusCode::kUnsupported, "quantization.m 4");
  refused(json::array(), StatusCode::kCorrupt, "quantization is a list");
  refused(4, StatusCode::kCorrupt, "quantization is 4");
}

TEST(ModelConfigModels, SmallMoe) {
  MOE_REQUIRE_MODEL(model, "small-moe");
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, read_model_config(model / "config.json"));
  EXPECT_EQ(parsed.model.num_layers, 8U);
  EXPECT_EQ(parsed.model.head_dim, 128U);
  EXPECT_EQ(parsed.model.rotary_dim, 32U);
  EXPECT_EQ(parsed.model.rope_theta, 100000.0);
  EXPECT_EQ(parsed.model.linear_value_heads, 4U);
  EXPECT_EQ(parsed.model.layer_type(7), LayerType::kFullAttention);
  EXPECT_EQ(parsed.model.layer_type(6), LayerType::kLinearAttention);
  EXPECT_EQ(parsed.model.eos_token_ids, (std::vector<std::int32_t>{4089}));
}

TEST(ModelConfigModels, DemoMlx) {
  MOE_REQUIRE_MODEL(model, "demo-moe-mlx-4bit");
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, read_model_config(model / "config.json"));
  EXPECT_EQ(parsed.model.num_experts, 12U);
  EXPECT_EQ(parsed.model.experts_per_token, 3U);
  ASSERT_TRUE(parsed.quantization.has_value());
  EXPECT_EQ(parsed.quantization->overrides.size(), 8U);
  EXPECT_EQ(parsed.quantization->format_of("language_model.model.layers.2.mlp.gate"),
            (WeightFormat{.id = QFormatId::kQ8, .group_size = 64}));
  EXPECT_EQ(parsed.quantization->format_of("language_model.lm_head"),
            (WeightFormat{.id = QFormatId::kQ4, .group_size = 64}));
}

}  // namespace
}  // namespace moepack::model_config_test
