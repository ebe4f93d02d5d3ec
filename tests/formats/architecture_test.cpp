// The tables of the families: what their readers rely on without asking again.
#include "formats/config/architecture.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace moepack::architecture_test {
namespace {

// Where the values for absent keys are those of a model without experts, as one with them.
std::string config_of(const Architecture& family) {
  std::string more;
  if (family.text_model_type == "gemma4_text") {
    more = R"(,"enable_moe_block":true,"hidden_size_per_layer_input":0,"attention_k_eq_v":true,
              "num_experts":128,"top_k_experts":8,"moe_intermediate_size":704)";
  }
  return R"({"model_type":")" + std::string(family.text_model_type) + '"' + more + '}';
}

TEST(Architecture, IsFoundByEveryNameOfItsOwnAndByNoOther) {
  std::set<std::string_view> names;
  std::set<std::string_view> in_gguf;
  for (const Architecture* family : architectures()) {
    EXPECT_EQ(find_architecture(family->wrapper_type), family);
    EXPECT_EQ(find_architecture(family->text_model_type), family);
    EXPECT_TRUE(names.insert(family->text_model_type).second) << family->text_model_type;
    if (family->gguf_architecture.empty()) continue;
    EXPECT_EQ(find_gguf_architecture(family->gguf_architecture), family);
    EXPECT_TRUE(in_gguf.insert(family->gguf_architecture).second) << family->gguf_architecture;
  }
  for (const char* name : {"", "qwen3", "qwen3_5_moe_tex", "phi3"}) {
    EXPECT_EQ(find_architecture(name), nullptr) << name;
    EXPECT_EQ(find_gguf_architecture(name), nullptr) << name;
  }
}

TEST(Architecture, HasEachRoleAndEachNameOnce) {
  for (const Architecture* family : architectures()) {
    std::set<ModuleRole> roles;
    std::set<std::string_view> names;
    std::set<std::string_view> gguf_names;
    for (const ResidentRule& rule : family->residents) {
      EXPECT_TRUE(roles.insert(rule.role).second) << rule.name;
      EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
      EXPECT_EQ(find_rule(*family, rule.role), &rule) << rule.name;
      // A family without an architecture there may share the table of one that has.
      EXPECT_TRUE(family->gguf_architecture.empty() || !rule.gguf_name.empty()) << rule.name;
      if (rule.gguf_name.empty()) continue;
      EXPECT_TRUE(gguf_names.insert(rule.gguf_name).second) << rule.name;
    }
    for (const FusedRule& fused : family->fused) {
      EXPECT_TRUE(names.insert(fused.name).second) << fused.name;
      for (const FusedPart& part : fused.parts) EXPECT_NE(find_rule(*family, part.role), nullptr);
    }
  }
}

using Roles = std::vector<ModuleRole>;

void append(Roles& roles, bool is_needed, const Roles& more) {
  if (is_needed) roles.insert(roles.end(), more.begin(), more.end());
}

Roles roles_of(const FullAttentionSpec& spec) {
  using enum ModuleRole;
  Roles roles{kQuery, kKey, kAttentionOutput};
  append(roles, !spec.values_are_keys, {kValue});
  append(roles, spec.norm != QueryKeyNorm::kNone, {kQueryNorm, kKeyNorm});
  append(roles, spec.has_bias, {kQueryBias, kKeyBias, kValueBias});
  append(roles, spec.has_output_bias, {kAttentionOutputBias});
  append(roles, spec.has_sinks, {kSinks});
  return roles;
}
Roles roles_of(const GatedDeltaNetSpec&) {
  using enum ModuleRole;
  return {kDeltaQkv,  kDeltaZ,      kDeltaBeta, kDeltaAlpha, kDeltaConv,
          kDeltaALog, kDeltaDtBias, kDeltaNorm, kDeltaOut};
}
Roles roles_of(const LatentAttentionSpec& spec) {
  using enum ModuleRole;
  Roles roles{kKeyValueDown, kKeyValueNorm, kKeyValueUp, kAttentionOutput};
  append(roles, spec.has_query_rank, {kQueryDown, kQueryDownNorm, kQueryUp});
  append(roles, !spec.has_query_rank, {kQuery});
  return roles;
}
Roles roles_of(const SoftmaxRouterSpec& spec) {
  using enum ModuleRole;
  Roles roles{kRouter};
  append(roles, spec.has_bias, {kRouterBias});
  append(roles, spec.has_norm, {kRouterNorm});
  append(roles, spec.has_expert_scales, {kExpertScales});
  return roles;
}
Roles roles_of(const SigmoidRouterSpec&) {
  using enum ModuleRole;
  return {kRouter, kRouterCorrection};
}
Roles roles_of(const ExpertsSpec& spec) {
  using enum ModuleRole;
  Roles roles;
  append(roles, spec.has_shared_expert, {kSharedGate, kSharedUp, kSharedDown});
  append(roles, spec.has_shared_expert && spec.has_shared_gate, {kSharedExpertGate});
  append(roles, spec.has_branch_norms, {kSharedInputNorm, kSharedOutputNorm, kRoutedOutputNorm});
  append(roles, spec.has_biases, {kExpertGateBias, kExpertUpBias, kExpertDownBias});
  return roles;
}
Roles roles_of(const DenseSpec&) {
  using enum ModuleRole;
  return {kDenseGate, kDenseUp, kDenseDown};
}

// The runtime asks for these roles by what a layer consists of.
TEST(Architecture, NamesEveryModuleThatItsLayersNeed) {
  using enum ModuleRole;
  for (const Architecture* family : architectures()) {
    ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse_model_config(config_of(*family), "c"));
    const ModelConfig& config = parsed.model;
    EXPECT_EQ(config.model_type, family->text_model_type);
    ASSERT_EQ(config.layers.size(), config.num_layers);
    const auto needs = [&](std::uint32_t layer, const Roles& roles) {
      for (ModuleRole role : roles) {
        const ResidentRule* rule = find_rule(*family, role);
        ASSERT_NE(rule, nullptr) << family->text_model_type << " " << static_cast<int>(role);
        EXPECT_TRUE(exists_in(*rule, config, layer)) << rule->name;
        EXPECT_TRUE(applies_to_layer(*rule, config, layer) || rule->scope == LayerScope::kModel)
            << rule->name;
      }
    };
    const auto part = [](const auto& spec) { return roles_of(spec); };
    needs(0, {kEmbedding, kFinalNorm, kOutputHead});
    for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
      const LayerSpec& spec = config.layers[layer];
      needs(layer, {kInputNorm, kPostNorm});
      needs(layer, std::visit(part, spec.mixer));
      if (has_experts(spec)) needs(layer, std::visit(part, spec.router));
      needs(layer, std::visit(part, spec.feed_forward));
      if (spec.has_output_norms) needs(layer, {kMixerOutputNorm, kNetworkOutputNorm});
      if (spec.has_output_scale) needs(layer, {kOutputScale});
    }
  }
}

// The shapes of the projections and of their norms follow what the layer says of its attention.
TEST(Architecture, ShapesAgreeWithTheLayers) {
  for (const Architecture* family : architectures()) {
    ASSERT_OK_AND_ASSIGN(const ParsedConfig parsed, parse_model_config(config_of(*family), "c"));
    const ModelConfig& c = parsed.model;
    for (std::uint32_t l = 0; l < c.num_layers; ++l) {
      const auto* spec = std::get_if<FullAttentionSpec>(&c.layers[l].mixer);
      if (spec == nullptr) continue;
      const HeadSizes heads = c.heads_of(*spec);
      const std::uint64_t queries = std::uint64_t{heads.heads} * heads.head_dim;
      const std::uint64_t keys = std::uint64_t{heads.kv_heads} * heads.head_dim;
      const auto rows = [&](ModuleRole role) {
        return module_shape(*find_rule(*family, role), c, l).front();
      };
      const bool per_head = spec->norm == QueryKeyNorm::kPerHead;
      EXPECT_FALSE(spec->has_gate && !per_head);
      EXPECT_EQ(rows(ModuleRole::kQuery), spec->has_gate ? 2 * queries : queries);
      EXPECT_EQ(rows(ModuleRole::kKey), keys);
      EXPECT_EQ(rows(ModuleRole::kValue), spec->values_are_keys ? 0 : keys);
      if (spec->norm == QueryKeyNorm::kNone) continue;
      EXPECT_EQ(rows(ModuleRole::kQueryNorm), per_head ? heads.head_dim : queries);
      EXPECT_EQ(rows(ModuleRole::kKeyNorm), per_head ? heads.head_dim : keys);
    }
  }
}

TEST(Architecture, OfAnUnknownModelTypeIsRefusedWithTheList) {
  ModelConfig config;
  config.model_type = "llama";
  test::expect_error(architecture_of(config).status(), StatusCode::kUnsupported,
                     {"llama", supported_model_types()});
}

}  // namespace
}  // namespace moepack::architecture_test
