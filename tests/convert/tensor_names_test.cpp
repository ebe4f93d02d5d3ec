#include "convert/source/tensor_names.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "convert/source/row_gather.h"

namespace moepack::tensor_names_test {
namespace {

const Architecture& names() { return *find_architecture("qwen3_5_moe_text"); }

TensorName classify(std::string_view name) { return classify_tensor(names(), name); }

TEST(TensorNames, KnowsItsArchitecturesOnly) {
  EXPECT_NE(find_architecture("qwen3_5_moe"), nullptr);
  EXPECT_NE(find_architecture("qwen3_5_moe_text"), nullptr);
  EXPECT_EQ(find_architecture(""), nullptr);
  EXPECT_NE(find_architecture("qwen3_next"), nullptr);
  EXPECT_EQ(find_gguf_architecture("qwen35moe"), find_architecture("qwen3_5_moe"));
  EXPECT_EQ(find_gguf_architecture("qwen3next"), find_architecture("qwen3_next"));
  EXPECT_EQ(find_gguf_architecture("phimoe"), nullptr);
}

TEST(TensorNames, EveryResidentHasOneNameInGguf) {
  std::set<std::string> seen;
  for (const ResidentRule& rule : names().residents) {
    const std::string name = gguf_tensor_name(rule, 3);
    EXPECT_TRUE(seen.insert(name).second) << name;
    const TensorName found = classify_gguf_tensor(names(), name, 4);
    EXPECT_EQ(found.role, TensorRole::kResident) << name;
    EXPECT_EQ(found.rule, &rule) << name;
    EXPECT_EQ(found.module, resident_module(rule, 3)) << name;
    if (rule.scope == LayerScope::kModel) continue;
    EXPECT_EQ(classify_gguf_tensor(names(), name, 3).role, TensorRole::kPredicts) << name;
    const std::string outside = name.substr(name.find('.', 4) + 1);
    EXPECT_EQ(classify_gguf_tensor(names(), outside, 4).role, TensorRole::kUnknown) << outside;
  }
  for (const char* name :
       {"blk.3.ffn_gate_exps.weigh", "blk.03.attn_q.weight", "blk.x.attn_q.weight",
        "blk.3.ssm_ba.weight", "blk.3.", "", "blk.3.ffn_gate_exps.scale"}) {
    EXPECT_EQ(classify_gguf_tensor(names(), name, 4).role, TensorRole::kUnknown) << name;
  }
}

// Two K heads of 2 rows with two V heads of 3 rows each: [q q k k v v v v v v z z z z z z] twice.
TEST(TensorNames, FusedTensorsFallApartHeadByHead) {
  const Architecture& next = *find_architecture("qwen3_next");
  ModelConfig config;
  config.linear_key_heads = 2;
  config.linear_value_heads = 4;
  config.linear_key_dim = 2;
  config.linear_value_dim = 3;
  const TensorName fused = classify_tensor(next, "model.layers.5.linear_attn.in_proj_qkvz.weight");
  ASSERT_EQ(fused.role, TensorRole::kFused);
  const auto parts = split_fused(next, fused);
  EXPECT_EQ(parts[0].module, "model.layers.5.linear_attn.in_proj_qkv");
  EXPECT_EQ(parts[1].module, "model.layers.5.linear_attn.in_proj_z");
  std::vector<std::uint64_t> rows[2];
  for (int i = 0; i < 2; ++i) {
    const RowRuns runs = parts[static_cast<std::size_t>(i)].fused_part->rows(config);
    const Status done = RowGather(runs, 1).for_each_piece(
        0, count_rows(runs), [&](std::uint64_t from, std::uint64_t at, std::uint64_t size) {
          EXPECT_EQ(at, rows[i].size());
          for (std::uint64_t j = 0; j < size; ++j) rows[i].push_back(from + j);
          return Status::ok();
        });
    EXPECT_TRUE(done.is_ok());
  }
  EXPECT_EQ(rows[0], (std::vector<std::uint64_t>{0, 1, 16, 17, 2,  3,  18, 19, 4,  5,
                                                 6, 7, 8,  9,  20, 21, 22, 23, 24, 25}));
  EXPECT_EQ(rows[1], (std::vector<std::uint64_t>{10, 11, 12, 13, 14, 15, 26, 27, 28, 29, 30, 31}));
}

// Any window of a gathered matrix is what the whole one has there.
TEST(RowGather, EveryWindowIsCutFromTheWhole) {
  const RowRuns runs{{5, 2, 7, 3}, {0, 1, 3, 2}};
  const RowGather gather(runs, 3);
  const auto read = [&](std::uint64_t begin, std::uint64_t size) {
    std::vector<std::uint64_t> bytes(size, 1000);
    EXPECT_TRUE(gather
                    .for_each_piece(begin, size,
                                    [&](std::uint64_t from, std::uint64_t at, std::uint64_t n) {
                                      for (std::uint64_t j = 0; j < n; ++j)
                                        bytes[at + j] = from + j;
                                      return Status::ok();
                                    })
                    .is_ok());
    return bytes;
  };
  const std::vector<std::uint64_t> whole = read(0, 24);
  EXPECT_EQ(whole.front(), 15U);
  EXPECT_EQ(whole.back(), 11U);
  for (std::size_t begin = 0; begin <= whole.size(); ++begin) {
    for (std::size_t end = begin; end <= whole.size(); ++end) {
      EXPECT_EQ(read(begin, end - begin),
                std::vector<std::uint64_t>(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                                           whole.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }
}

TEST(TensorNames, FamiliesWithoutAPartDoNotKnowItsTensors) {
  const Architecture& plain = *find_architecture("qwen3_moe");
  EXPECT_EQ(classify_tensor(plain, "model.layers.0.self_attn.q_norm.weight").role,
            TensorRole::kResident);
  EXPECT_EQ(classify_tensor(plain, "model.layers.0.mlp.experts.5.up_proj.weight").role,
            TensorRole::kExpert);
  EXPECT_EQ(classify_tensor(plain, "model.layers.0.mlp.switch_mlp.up_proj.scales").role,
            TensorRole::kExpert);
  for (const char* name :
       {"model.layers.0.mlp.shared_expert.up_proj.weight",
        "model.layers.0.linear_attn.in_proj_z.weight", "model.layers.0.self_attn.q_proj.bias",
        "model.visual.x", "mtp.fc.weight", "language_model.model.norm.weight"}) {
    EXPECT_EQ(classify_tensor(plain, name).role, TensorRole::kUnknown) << name;
  }
}

TEST(TensorNames, EveryPrefixLeadsToOneCanonicalName) {
  for (const char* name : {"model.layers.12.self_attn.q_proj.weight",
                           "model.language_model.layers.12.self_attn.q_proj.weight",
                           "language_model.model.layers.12.self_attn.q_proj.weight"}) {
    const TensorName found = classify(name);
    EXPECT_EQ(found.role, TensorRole::kResident) << name;
    EXPECT_EQ(found.module, "model.layers.12.self_attn.q_proj");
    EXPECT_EQ(found.layer, 12U);
    EXPECT_EQ(found.part, Component::kCodes);
  }
  for (const char* name : {"lm_head.scales", "language_model.lm_head.scales"}) {
    const TensorName found = classify(name);
    EXPECT_EQ(found.module, "lm_head");
    EXPECT_EQ(found.part, Component::kScales);
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
  EXPECT_EQ(fused.part, Component::kCodes);
  EXPECT_EQ(classify("model.language_model.layers.0.mlp.experts.gate_up_proj.weight").matrix,
            ExpertMatrix::kGateUp);

  const TensorName stacked =
      classify("language_model.model.layers.59.mlp.switch_mlp.down_proj.biases");
  EXPECT_EQ(stacked.role, TensorRole::kExpert);
  EXPECT_EQ(stacked.matrix, ExpertMatrix::kDown);
  EXPECT_EQ(stacked.part, Component::kBiases);
  EXPECT_EQ(stacked.expert, std::nullopt);
}

TEST(TensorNames, PartsThatAreNotRun) {
  for (const char* name : {"model.visual.blocks.0.attn.qkv.weight", "vision_tower.x"}) {
    EXPECT_EQ(classify(name).role, TensorRole::kSkipped) << name;
  }
  for (const char* name :
       {"mtp.fc.weight", "model.mtp.norm.weight", "mtp.layers.0.mlp.experts.gate_up_proj",
        "language_model.mtp.fc.weight"}) {
    EXPECT_EQ(classify(name).role, TensorRole::kPredicts) << name;
  }
}

// A name that is nearly right must not be taken for the right one.
// Encodings name their tensors behind the module's name; some of them say nothing about weights.
TEST(TensorNames, SuffixesOfEncodings) {
  const auto classified = [](const std::string& suffix) {
    return classify("model.layers.0.mlp.experts.3.up_proj" + suffix);
  };
  for (const auto& [suffix, component] :
       {std::pair{".weight_scale_inv", Component::kScales},
        std::pair{".weight_scale", Component::kScales},
        std::pair{".weight_packed", Component::kCodes}, std::pair{".qweight", Component::kCodes},
        std::pair{".weight_zero_point", Component::kZeros}}) {
    const TensorName found = classified(suffix);
    EXPECT_EQ(found.role, TensorRole::kExpert) << suffix;
    EXPECT_EQ(found.part, component) << suffix;
    EXPECT_EQ(found.module, "model.layers.0.mlp.experts.3.up_proj") << suffix;
  }
  for (const char* suffix : {".weight_shape", ".input_scale"}) {
    EXPECT_EQ(classified(suffix).role, TensorRole::kUnused) << suffix;
  }
  EXPECT_EQ(classified(".qweights").role, TensorRole::kUnknown);
}

TEST(TensorNames, EverythingElseIsUnknown) {
  for (const char* name : {"",
                           "model",
                           "model.",
                           "model.layers.",
                           "model.layers.0.",
                           "model.layers.00.mlp.gate.weight",
                           "model.layers.-1.mlp.gate.weight",
                           "model.layers.9999999.mlp.gate.weight",
                           "model.layers.0.mlp.gate.qweights",
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
}  // namespace moepack::tensor_names_test
