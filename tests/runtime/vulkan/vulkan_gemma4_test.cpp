// Gemma 4 with experts on a GPU: against transformers' logits, and random models against the
// reference backend with heads as large as published ones, in every way of giving tokens, over
// several devices, and with experts of several formats.
#include <fstream>
#include <string>

#include "tests/runtime/vulkan/vulkan_model_fixture.h"
#include "tests/support/family_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_models.h"
#include "tests/support/vulkan_devices.h"

namespace moepack::vulkan_gemma4_test {
namespace {

class VulkanGemma4 : public VulkanModel {
 protected:
  static Ids golden_ids() {
    std::ifstream in(test::gemma4_model() / "golden.json");
    return nlohmann::json::parse(in)["ids"].get<Ids>();
  }

  // A random one, with `changes` to the corpus' configuration.
  std::filesystem::path random_model(const char* changes, const ConvertOptions& rounding = {}) {
    nlohmann::json config = test::family_config("gemma4_text");
    config.update(nlohmann::json::parse(changes));
    test::write_family_model(dir_ / "checkpoint", config);
    return test::convert_for_test(dir_ / "checkpoint", dir_, rounding);
  }

  static void expect_golden(const std::filesystem::path& model) {
    const Ids ids = golden_ids();
    const auto golden = test::read_golden<float>(test::gemma4_model() / "golden_logits.f32");
    const auto engine = open(on_device(model));
    ASSERT_NE(engine, nullptr);
    // A prompt longer than the window, in one or in parts, a few rows at once, single tokens.
    for (const std::vector<std::size_t>& pieces :
         {std::vector<std::size_t>{24}, {11, 13}, {17}, {8, 5, 8}, {}}) {
      SCOPED_TRACE(pieces.empty() ? 1 : pieces.front());
      EXPECT_LT(test::relative_error(logits(*engine, ids, pieces), golden), kTolerance);
    }
  }
};

TEST_F(VulkanGemma4, GoldenLogits) {
  expect_golden(test::convert_for_test(test::gemma4_model(), dir_));
}

TEST_F(VulkanGemma4, GoldenLogitsOfFloats) {
  ConvertOptions floats;
  floats.expert_format = QFormatId::kF32;
  floats.resident_format = QFormatId::kF32;
  expect_golden(test::convert_for_test(test::gemma4_model(), dir_, floats));
}

// Of what is rounded the reference computes with the same codes.
TEST_F(VulkanGemma4, FourBits) {
  ConvertOptions rounding;
  rounding.expert_format = QFormatId::kQ4;
  rounding.group_size = 32;
  const auto model = test::convert_for_test(test::gemma4_model(), dir_, rounding);
  expect_like_reference(on_device(model));
  expect_like_reference(on_device(model), kTolerance, {});
}

// The prompt's bits do not depend on the parts that it comes in.
TEST_F(VulkanGemma4, ChunksChangeNoBit) {
  const auto engine = open(on_device(test::convert_for_test(test::gemma4_model(), dir_)));
  ASSERT_NE(engine, nullptr);
  const Ids ids = random_ids(60, engine->config().vocab_size);
  const std::vector<float> whole = logits(*engine, ids, {60});
  EXPECT_EQ(logits(*engine, ids, {9, 31, 20}), whole);
  EXPECT_EQ(logits(*engine, ids, {60}), whole) << "a second run";
  EXPECT_EQ(logits(*engine, ids, {8, 8, 1, 7}), logits(*engine, ids, {}));
}

constexpr const char* kPublishedHeads =
    R"({"head_dim": 256, "global_head_dim": 512, "num_attention_heads": 16,
        "num_key_value_heads": 8, "num_global_key_value_heads": 2, "sliding_window": 21,
        "hidden_size": 88, "intermediate_size": 72, "moe_intermediate_size": 40,
        "final_logit_softcapping": 30.0})";

// Scores of heads so wide, which no training has scaled, are tens: the processor's own kernels are
// 1.8e-5 from the reference.
TEST_F(VulkanGemma4, HeadsOfPublishedSizes) {
  expect_like_reference(on_device(random_model(kPublishedHeads)), 4e-5);
}

// Which also count shared memory.
TEST_F(VulkanGemma4, ValidationLayersHaveNothingToSay) {
  std::vector<std::string> messages;
  EngineOptions options = on_device(random_model(kPublishedHeads));
  options.device_limits.validation = [&](const std::string& text) { messages.push_back(text); };
  const auto opened = Engine::open(options);
  if (!opened.is_ok()) GTEST_SKIP() << "SKIPPED: " << opened.status().message();
  (void)logits(*opened.value(), random_ids(16, opened.value()->config().vocab_size), {12});
  EXPECT_TRUE(messages.empty()) << messages.size() << " messages, first: " << messages.front();
}

// Widths of both branches alike, so that their records are too, and their inputs alone differ.
TEST_F(VulkanGemma4, BranchesOfOneWidth) {
  expect_like_reference(on_device(random_model(R"({"intermediate_size": 32})")),
                        kUntrainedTolerance);
}

TEST_F(VulkanGemma4, ValuesOfTheirOwn) {
  expect_like_reference(on_device(random_model(R"({"attention_k_eq_v": false})")),
                        kUntrainedTolerance);
}

// Gate and up of the two branches in formats that differ.
TEST_F(VulkanGemma4, BranchesOfOtherFormats) {
  ConvertOptions rounding;
  rounding.expert_format = QFormatId::kQ4;
  rounding.resident_format = QFormatId::kQ8;
  rounding.group_size = 32;
  expect_like_reference(
      on_device(random_model(R"({"intermediate_size": 96, "head_dim": 16, "global_head_dim": 24})",
                             rounding)),
      kUntrainedTolerance);
}

// Experts brought in parts, between which the results of others wait.
TEST_F(VulkanGemma4, FewSlotsOfExperts) {
  EngineOptions options = on_device(random_model("{}"));
  const auto whole = open(options);
  ASSERT_NE(whole, nullptr);
  const VulkanPlan& plan = whole->device_use()->plan;
  options.vram_bytes = plan.fixed_bytes() + plan.all_expert_bytes / 18 * 3;
  options.cold_experts = ColdExperts::kFetch;
  expect_like_reference(options, kUntrainedTolerance);
}

TEST_F(VulkanGemma4, SeveralDevicesGiveTheBitsOfOne) {
  const auto model = test::convert_for_test(test::gemma4_model(), dir_);
  EngineOptions one = on_device(model);
  one.device = 0;
  const auto whole = open(one);
  EngineOptions several = on_device(model);
  several.devices = test::alike_devices(3);
  const auto parts = open(several);
  ASSERT_TRUE(whole != nullptr && parts != nullptr);
  const Ids ids = random_ids(40, whole->config().vocab_size);
  EXPECT_EQ(logits(*parts, ids, {27, 5}), logits(*whole, ids, {27, 5}));
}

// Layers with heads of both sizes are copied, saved and restored, each as it is.
TEST_F(VulkanGemma4, SequencesAreCopiedSavedAndRestored) {
  EngineOptions options = on_device(random_model("{}"));
  options.sequences = 3;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  const Ids ids = random_ids(30, engine->config().vocab_size);
  const auto logits_of = [&](Sequence& sequence, std::span<const std::int32_t> tokens) {
    std::vector<float> all;
    const Slice slice{&sequence, tokens, 0, [&](std::size_t, std::span<const float> row) {
                        all.insert(all.end(), row.begin(), row.end());
                        return Status::ok();
                      }};
    EXPECT_OK(engine->forward(std::span(&slice, 1)).front());
    return all;
  };
  ASSERT_OK_AND_ASSIGN(Sequence first, engine->make_sequence());
  (void)logits_of(first, std::span(ids).first(20));
  ASSERT_OK_AND_ASSIGN(Sequence copied, first.copy());
  ASSERT_OK_AND_ASSIGN(const std::vector<std::byte> saved, first.save());
  ASSERT_OK_AND_ASSIGN(Sequence restored, engine->make_sequence());
  EXPECT_OK(restored.restore(saved));
  const std::vector<float> next = logits_of(first, std::span(ids).subspan(20));
  EXPECT_EQ(logits_of(copied, std::span(ids).subspan(20)), next);
  EXPECT_EQ(logits_of(restored, std::span(ids).subspan(20)), next);
}

}  // namespace
}  // namespace moepack::vulkan_gemma4_test
