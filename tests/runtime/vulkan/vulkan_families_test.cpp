// Random models of the families on a GPU against the reference backend, with sizes of no power of
// two and with every part that a family adds: windows and sinks, biases, the limited activation
// and gelu, partial rotation, heads of two sizes, norms behind mixer and network, groups of
// experts, corrections and scales of routing, dense layers. In float32, and with inputs in fixed
// point.
#include <string>

#include "tests/runtime/vulkan/vulkan_model_fixture.h"
#include "tests/support/family_model.h"

namespace moepack::vulkan_families_test {
namespace {

struct FamilyCase {
  const char* name;
  const char* family;
  const char* changes;  // of its configuration
};

// Of the test's name.
void PrintTo(const FamilyCase& c, std::ostream* out) { *out << c.name; }

class VulkanFamilies : public VulkanModel, public ::testing::WithParamInterface<FamilyCase> {
 protected:
  std::filesystem::path model(const nlohmann::json& further, const ConvertOptions& rounding) {
    nlohmann::json config = test::family_config(GetParam().family);
    config.update(nlohmann::json::parse(GetParam().changes));
    config.update(further);
    test::write_family_model(dir_ / "checkpoint", config);
    return test::convert_for_test(dir_ / "checkpoint", dir_, rounding);
  }
};

TEST_P(VulkanFamilies, Floats) {
  expect_like_reference(on_device(model(nlohmann::json::object(), {})), kUntrainedTolerance);
}

// Codes need whole groups, so sizes are rounder. Programs of few rows take inputs as two bytes
// each.
TEST_P(VulkanFamilies, InputsInFixedPoint) {
  ConvertOptions rounding;
  rounding.expert_format = QFormatId::kQ4;
  rounding.resident_format = QFormatId::kQ8;
  rounding.group_size = 32;
  nlohmann::json sizes = {{"hidden_size", 96}, {"intermediate_size", 64}};
  const nlohmann::json usual = test::family_config(GetParam().family);
  if (usual.contains("head_dim")) sizes["head_dim"] = 32;
  if (usual.contains("moe_intermediate_size")) sizes["moe_intermediate_size"] = 64;
  if (std::string(GetParam().family) == "olmoe") sizes["num_attention_heads"] = 3;
  if (std::string(GetParam().family) == "olmoe") sizes["num_key_value_heads"] = 3;
  EngineOptions options = on_device(model(sizes, rounding));
  options.activations = ActivationType::kInt8;
  options.device_limits.wants_fixed_products = true;
  // No tiles: with cooperative matrices they have inputs of 16-bit floats.
  expect_like_reference(options, 1e-3, {8, 8, 8, 8, 5});
  options.activations = ActivationType::kFloat32;
  options.device_limits.wants_fixed_products = false;
  expect_like_reference(options, kUntrainedTolerance);
}

INSTANTIATE_TEST_SUITE_P(
    All, VulkanFamilies,
    ::testing::Values(
        FamilyCase{"olmoe", "olmoe",
                   R"({"hidden_size": 120, "num_attention_heads": 5, "num_key_value_heads": 5,
                       "intermediate_size": 72, "clip_qkv": 1.5})"},
        FamilyCase{"qwen3_moe", "qwen3_moe",
                   R"({"hidden_size": 104, "head_dim": 40, "num_attention_heads": 6,
                       "moe_intermediate_size": 72, "num_local_experts": 7})"},
        FamilyCase{"mixtral", "mixtral",
                   R"({"hidden_size": 104, "head_dim": 40, "num_attention_heads": 6,
                       "intermediate_size": 72, "num_local_experts": 5})"},
        FamilyCase{"glm4_moe", "glm4_moe",
                   R"({"hidden_size": 104, "head_dim": 24, "num_attention_heads": 6,
                       "moe_intermediate_size": 72, "intermediate_size": 88, "n_routed_experts": 9,
                       "n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.7,
                       "num_nextn_predict_layers": 0})"},
        FamilyCase{"glm4_moe_without_norms", "glm4_moe",
                   R"({"use_qk_norm": false, "attention_bias": false, "norm_topk_prob": false,
                       "n_routed_experts": 12, "n_group": 4, "topk_group": 3, "n_shared_experts": 2,
                       "num_nextn_predict_layers": 0})"},
        FamilyCase{"minimax_m2", "minimax_m2",
                   R"({"hidden_size": 104, "head_dim": 40, "num_attention_heads": 6,
                       "rotary_dim": 12, "intermediate_size": 72, "num_local_experts": 9})"},
        FamilyCase{"gpt_oss", "gpt_oss",
                   R"({"hidden_size": 104, "head_dim": 24, "num_attention_heads": 6,
                       "intermediate_size": 56, "sliding_window": 9, "swiglu_limit": 0.4})"},
        FamilyCase{"gemma4", "gemma4_text",
                   R"({"hidden_size": 104, "head_dim": 24, "global_head_dim": 40,
                       "num_attention_heads": 6, "moe_intermediate_size": 56,
                       "intermediate_size": 72, "sliding_window": 9, "num_experts": 7,
                       "top_k_experts": 3})"},
        FamilyCase{"deepseek_v3", "kimi_k2", "{}"}),
    [](const ::testing::TestParamInfo<FamilyCase>& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace moepack::vulkan_families_test
