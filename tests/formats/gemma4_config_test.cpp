// Gemma 4 with experts: what its configuration says of every layer, in the published form and in
// the one that newer versions of transformers write; and what is refused.
#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/config/architecture.h"
#include "formats/config/model_config.h"
#include "tests/support/reader_drill.h"
#include "tests/support/status_matchers.h"

namespace moepack::gemma4_config_test {
namespace {

using nlohmann::json;
using test::expect_error;

constexpr const char* kFile = "config.json";

Result<ParsedConfig> parse(const json& config) { return parse_model_config(config.dump(), kFile); }

// Every number is its own, so that mixed-up keys show. The form of published files.
json published() {
  return json::parse(R"({
    "model_type": "gemma4_text", "vocab_size": 500, "hidden_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 40, "global_head_dim": 48,
    "num_global_key_value_heads": 3, "attention_k_eq_v": true, "enable_moe_block": true,
    "num_experts": 10, "top_k_experts": 7, "moe_intermediate_size": 64, "intermediate_size": 72,
    "sliding_window": 9, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 777, "rms_norm_eps": 1e-5,
    "use_bidirectional_attention": "vision", "num_kv_shared_layers": 0, "eos_token_id": [1, 106],
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
      "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0},
      "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                         "rope_theta": 70000.0}}
  })");
}

// The same as transformers 5.24 writes it.
json by_layer() {
  json config = published();
  config.erase("global_head_dim");
  config.erase("num_global_key_value_heads");
  const json wide{{"head_dim", 48}, {"num_key_value_heads", 3}};
  config["per_layer_config"] = {{"1", wide}, {"3", wide}};
  return config;
}

LayerSpec layer_of(const FullAttentionSpec& attention) {
  return {
      .mixer = attention,
      .router = SoftmaxRouterSpec{.renormalise = true, .has_norm = true, .has_expert_scales = true},
      .feed_forward = ExpertsSpec{.has_shared_expert = true,
                                  .has_shared_gate = false,
                                  .activation = ExpertActivation::kGeGlu,
                                  .has_branch_norms = true},
      .has_output_norms = true,
      .has_output_scale = true};
}

TEST(Gemma4Config, IsReadWholeInBothForms) {
  for (const json& config : {published(), by_layer()}) {
    ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
    const ModelConfig& m = parsed.model;
    EXPECT_EQ(m.num_experts, 10U);
    EXPECT_EQ(m.experts_per_token, 7U);
    EXPECT_EQ(m.expert_width, 64U);
    EXPECT_EQ(m.shared_expert_width, 72U);
    EXPECT_EQ(m.embedding_scale, std::sqrt(96.0F));
    EXPECT_EQ(m.logit_cap, 30.0F);
    EXPECT_TRUE(m.tie_word_embeddings);
    EXPECT_EQ(m.eos_token_ids, (std::vector<std::int32_t>{1, 106}));
    const HeadSizes narrow{.heads = 12,
                           .kv_heads = 4,
                           .head_dim = 40,
                           .rotary_dim = 40,
                           .rotated_pairs = 20,
                           .rope_theta = 5000};
    const HeadSizes wide{.heads = 12,
                         .kv_heads = 3,
                         .head_dim = 48,
                         .rotary_dim = 48,
                         .rotated_pairs = 6,
                         .rope_theta = 70000};
    EXPECT_EQ(m.head_kinds(), (std::vector{narrow, wide}));
    const LayerSpec sliding = layer_of({.window = 9, .score_scale = 1.0F, .has_value_norm = true});
    const LayerSpec full = layer_of(
        {.own_heads = wide, .score_scale = 1.0F, .values_are_keys = true, .has_value_norm = true});
    EXPECT_EQ(m.layers, (std::vector{sliding, full, sliding, full}));
  }
}

// As google/gemma-4-26B-A4B states it, of the configuration class's values where it is silent.
TEST(Gemma4Config, OfA26B) {
  json config = json::parse(R"({
    "model_type": "gemma4", "tie_word_embeddings": true, "text_config": {
      "model_type": "gemma4_text", "hidden_size": 2816, "num_hidden_layers": 30,
      "num_attention_heads": 16, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
      "attention_k_eq_v": true, "enable_moe_block": true, "num_experts": 128, "top_k_experts": 8,
      "moe_intermediate_size": 704, "intermediate_size": 2112, "sliding_window": 1024,
      "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0}})");
  ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse(config));
  const ModelConfig& m = parsed.model;
  ASSERT_EQ(m.head_kinds().size(), 2U);
  EXPECT_EQ(m.head_kinds()[1], (HeadSizes{.heads = 16,
                                          .kv_heads = 2,
                                          .head_dim = 512,
                                          .rotary_dim = 512,
                                          .rotated_pairs = 64,
                                          .rope_theta = 1e6}));
  const Architecture& family = *find_architecture("gemma4");
  const auto shape = [&](ModuleRole role, std::uint32_t layer) {
    return module_shape(*find_rule(family, role), m, layer);
  };
  using Shape = std::vector<std::uint64_t>;
  EXPECT_EQ(shape(ModuleRole::kQuery, 4), (Shape{4096, 2816}));
  EXPECT_EQ(shape(ModuleRole::kQuery, 5), (Shape{8192, 2816}));
  EXPECT_EQ(shape(ModuleRole::kKey, 4), (Shape{2048, 2816}));
  EXPECT_EQ(shape(ModuleRole::kKey, 5), (Shape{1024, 2816}));
  EXPECT_EQ(shape(ModuleRole::kAttentionOutput, 29), (Shape{2816, 8192}));
  EXPECT_EQ(shape(ModuleRole::kKeyNorm, 29), (Shape{512}));
  EXPECT_TRUE(exists_in(*find_rule(family, ModuleRole::kValue), m, 4));
  EXPECT_FALSE(exists_in(*find_rule(family, ModuleRole::kValue), m, 5));
}

// What transformers does with them: the last layer sees all tokens whatever the list says; the
// other number of key-value heads is only looked at where values are keys.
TEST(Gemma4Config, QuirksOfTransformers) {
  json config = published();
  config["layer_types"][3] = "sliding_attention";
  ASSERT_OK_AND_ASSIGN(const ParsedConfig last, parse(config));
  EXPECT_FALSE(std::get<FullAttentionSpec>(last.model.layers[3].mixer).window.has_value());
  config = published();
  config["attention_k_eq_v"] = false;
  ASSERT_OK_AND_ASSIGN(const ParsedConfig apart, parse(config));
  const auto& full = std::get<FullAttentionSpec>(apart.model.layers[1].mixer);
  EXPECT_FALSE(full.values_are_keys);
  EXPECT_EQ(full.own_heads->kv_heads, 4U);
  EXPECT_EQ(full.own_heads->head_dim, 48U);
  config = published();
  config.erase("layer_types");
  config["num_hidden_layers"] = 7;
  ASSERT_OK_AND_ASSIGN(const ParsedConfig sixth, parse(config));
  for (std::size_t l = 0; l < 7; ++l) {
    EXPECT_EQ(std::get<FullAttentionSpec>(sixth.model.layers[l].mixer).window.has_value(),
              l != 5 && l != 6)
        << l;
  }
}

TEST(Gemma4Config, RefusesWhatItDoesNotCompute) {
  const auto refused = [](const char* key, const json& value, StatusCode code,
                          std::string_view part) {
    json config = published();
    if (value == "absent") {
      config.erase(key);
    } else {
      config[key] = value;
    }
    expect_error(parse(config).status(), code, {kFile, part});
  };
  const auto unsupported = [&](const char* key, const json& value) {
    refused(key, value, StatusCode::kUnsupported, key);
  };
  const auto corrupt = [&](const char* key, const json& value) {
    refused(key, value, StatusCode::kCorrupt, key);
  };
  unsupported("hidden_size_per_layer_input", 256);
  unsupported("hidden_size_per_layer_input", "absent");  // transformers takes 256
  unsupported("num_kv_shared_layers", 2);
  unsupported("enable_moe_block", false);
  unsupported("enable_moe_block", "absent");
  unsupported("use_bidirectional_attention", "all");
  unsupported("hidden_activation", "silu");
  unsupported("attention_bias", true);
  unsupported("attn_logit_softcapping", 50.0);
  unsupported("rope_scaling", {{"type", "linear"}});
  unsupported("layer_types",
              {"sliding_attention", "chunked_attention", "sliding_attention", "full_attention"});
  corrupt("layer_types", {"sliding_attention"});
  for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    corrupt(key, "absent");
    corrupt(key, 0);
  }
  corrupt("top_k_experts", 11);
  corrupt("final_logit_softcapping", 0);
  corrupt("final_logit_softcapping", -30);
  corrupt("sliding_window", 0);
  corrupt("head_dim", 39);
  corrupt("global_head_dim", 1 << 30);
  refused("global_head_dim", 47, StatusCode::kCorrupt, "head_dim");
  refused("num_global_key_value_heads", 5, StatusCode::kCorrupt, "key-value heads of layers");
  corrupt("num_global_key_value_heads", 0);
}

TEST(Gemma4Config, OneBadByteIsOneLine) {
  for (const json& config : {published(), by_layer()}) {
    test::drill_truncation(config.dump(), [](std::string_view text) {
      return parse_model_config(text, kFile).status();
    });
  }
}

TEST(Gemma4Config, RefusesRotationsAndHeadsThatItDoesNotCompute) {
  const auto rope = [](const char* kind, const char* key, const json& value, StatusCode code) {
    json config = published();
    if (value == "absent") {
      config["rope_parameters"][kind].erase(key);
    } else {
      config["rope_parameters"][kind][key] = value;
    }
    expect_error(parse(config).status(), code, {kFile, "rope_parameters", key});
  };
  rope("full_attention", "rope_type", "yarn", StatusCode::kUnsupported);
  rope("full_attention", "rope_type", "absent", StatusCode::kCorrupt);
  rope("full_attention", "factor", 8.0, StatusCode::kUnsupported);
  rope("full_attention", "partial_rotary_factor", 1.5, StatusCode::kCorrupt);
  rope("full_attention", "rope_theta", 0.5, StatusCode::kCorrupt);
  rope("sliding_attention", "partial_rotary_factor", 0.5, StatusCode::kUnsupported);
  rope("sliding_attention", "rope_theta", "absent", StatusCode::kCorrupt);
  json config = published();
  config["rope_parameters"].erase("sliding_attention");
  expect_error(parse(config).status(), StatusCode::kCorrupt, {kFile, "sliding_attention"});

  const auto layers = [](const char* path, const json& value, StatusCode code) {
    json changed = by_layer();
    changed[json::json_pointer(path)] = value;
    expect_error(parse(changed).status(), code, {kFile, "per_layer_config"});
  };
  layers("/per_layer_config/0", {{"head_dim", 48}}, StatusCode::kUnsupported);
  layers("/per_layer_config/4", {{"head_dim", 48}}, StatusCode::kCorrupt);
  layers("/per_layer_config/full_attention", {{"head_dim", 48}}, StatusCode::kCorrupt);
  layers("/per_layer_config/1/head_dim", 56, StatusCode::kUnsupported);
  layers("/per_layer_config/1/sliding_window", 5, StatusCode::kUnsupported);
  layers("/per_layer_config/1", json(7), StatusCode::kCorrupt);
  layers("/per_layer_config", json::array(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace moepack::gemma4_config_test
