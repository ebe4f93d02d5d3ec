#include "convert/tensor_names.h"

#include <gtest/gtest.h>

namespace moepack {
namespace {

const ArchitectureNames& names() { return *find_architecture("qwen3_5_moe_text"); }

TensorName classify(std::string_view name) { return classify_tensor(names(), name); }

TEST(TensorNames, KnowsItsArchitecturesOnly) {
  EXPECT_NE(find_architecture("qwen3_5_moe"), nullptr);
  EXPECT_NE(find_architecture("qwen3_5_moe_text"), nullptr);
  EXPECT_EQ(find_architecture("qwen3_moe"), nullptr);
  EXPECT_EQ(find_architecture(""), nullptr);
}

TEST(TensorNames, EveryPrefixLeadsToOneCanonicalName) {
  for (const char* name : {"model.layers.12.self_attn.q_proj.weight",
                           "model.language_model.layers.12.self_attn.q_proj.weight",
                           "language_model.model.layers.12.self_attn.q_proj.weight"}) {
    const TensorName found = classify(name);
    EXPECT_EQ(found.role, TensorRole::kResident) << name;
    EXPECT_EQ(found.module, "model.layers.12.self_attn.q_proj");
    EXPECT_EQ(found.layer, 12U);
    EXPECT_EQ(found.part, TensorPart::kWeight);
  }
  for (const char* name : {"lm_head.scales", "language_model.lm_head.scales"}) {
    const TensorName found = classify(name);
    EXPECT_EQ(found.module, "lm_head");
    EXPECT_EQ(found.part, TensorPart::kScales);
  }
}

TEST(TensorNames, BareParametersKeepTheirNames) {
  const TensorName found = classify("language_model.model.layers.0.linear_attn.A_log");
  EXPECT_EQ(found.role, TensorRole::kResident);
  EXPECT_EQ(found.module, "model.layers.0.linear_attn.A_log");
  EXPECT_EQ(classify("model.layers.0.linear_attn.A_log.weight").role, TensorRole::kUnknown);
  EXPECT_EQ(classify("model.layers.0.linear_attn.conv1d").role, TensorRole::kUnknown);
}

TEST(TensorNames, ExpertsInEveryLayout) {
  const TensorName single = classify("model.layers.3.mlp.experts.17.up_proj.weight");
  EXPECT_EQ(single.role, TensorRole::kExpert);
  EXPECT_EQ(single.matrix, ExpertMatrix::kUp);
  EXPECT_EQ(single.expert, 17U);
  EXPECT_EQ(single.layer, 3U);

  const TensorName fused = classify("model.language_model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_EQ(fused.matrix, ExpertMatrix::kGateUp);
  EXPECT_EQ(fused.expert, std::nullopt);
  EXPECT_EQ(fused.part, TensorPart::kWeight);
  EXPECT_EQ(classify("model.language_model.layers.0.mlp.experts.gate_up_proj.weight").matrix,
            ExpertMatrix::kGateUp);

  const TensorName stacked =
      classify("language_model.model.layers.59.mlp.switch_mlp.down_proj.biases");
  EXPECT_EQ(stacked.role, TensorRole::kExpert);
  EXPECT_EQ(stacked.matrix, ExpertMatrix::kDown);
  EXPECT_EQ(stacked.part, TensorPart::kBiases);
  EXPECT_EQ(stacked.expert, std::nullopt);
}

TEST(TensorNames, VisionAndMultiTokenPredictionAreSkipped) {
  for (const char* name :
       {"model.visual.blocks.0.attn.qkv.weight", "vision_tower.x", "mtp.fc.weight",
        "model.mtp.norm.weight", "mtp.layers.0.mlp.experts.gate_up_proj",
        "language_model.mtp.fc.weight"}) {
    EXPECT_EQ(classify(name).role, TensorRole::kSkipped) << name;
  }
}

// A name that is nearly right must not be taken for the right one.
TEST(TensorNames, EverythingElseIsUnknown) {
  for (const char* name : {"",
                           "model",
                           "model.",
                           "model.layers.",
                           "model.layers.0.",
                           "model.layers.00.mlp.gate.weight",
                           "model.layers.-1.mlp.gate.weight",
                           "model.layers.9999999.mlp.gate.weight",
                           "model.layers.0.mlp.gate.weight_scale_inv",
                           "model.layers.0.mlp.gate.bias",
                           "model.layers.0.mlp.gate.weight.weight",
                           "model.layers.0.mlp.experts.0.gate_proj",
                           "model.layers.0.mlp.experts.0.gate_up_proj.weight",
                           "model.layers.0.mlp.experts.01.gate_proj.weight",
                           "model.layers.0.mlp.experts.x.gate_proj.weight",
                           "model.layers.0.mlp.router.weight",
                           "model.layers.0.model.norm.weight",
                           "norm.weight",
                           "transformer.wte.weight",
                           "lm_head.bias",
                           "lm_headweight"}) {
    EXPECT_EQ(classify(name).role, TensorRole::kUnknown) << name;
  }
}

TEST(TensorNames, RoundingRulesOfTheDesign) {
  const auto rounding = [](const char* name) { return classify(name).rule->rounding; };
  for (const char* name :
       {"model.norm.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.0.linear_attn.norm.weight", "model.layers.3.self_attn.q_norm.weight",
        "model.layers.0.linear_attn.conv1d.weight", "model.layers.0.linear_attn.A_log",
        "model.layers.0.linear_attn.dt_bias"}) {
    EXPECT_EQ(rounding(name), Rounding::kNever) << name;
  }
  for (const char* name :
       {"model.layers.0.mlp.gate.weight", "model.layers.0.mlp.shared_expert_gate.weight"}) {
    EXPECT_EQ(rounding(name), Rounding::kAtLeast8) << name;
  }
  EXPECT_EQ(rounding("lm_head.weight"), Rounding::kAsAsked);
}

}  // namespace
}  // namespace moepack
