// Models whose experts do not all fit on the device: the hot ones there, the others on the
// processor at the same time, against the reference backend. On a machine without a GPU a processor
// that plays one (lavapipe) serves; without that the tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "tests/runtime/vulkan/driver_stays.h"
#include "tests/support/converted_model.h"
#include "tests/support/relative_error.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"

namespace moepack::hybrid_model_test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr double kTolerance = 1.5e-5;  // float32 sums in another order

Ids random_ids(std::size_t count, std::uint32_t vocab, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  Ids ids(count);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % vocab);
  return ids;
}

class HybridModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!DriverStays::reason().empty()) GTEST_SKIP() << "SKIPPED: " << DriverStays::reason();
  }

  std::filesystem::path tiny(const test::TinyModelOptions& options = {}) {
    test::write_tiny_model(dir_ / "checkpoint", options);
    return test::convert_for_test(dir_ / "checkpoint", dir_);
  }

  static std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return engine.is_ok() ? std::move(engine).value() : nullptr;
  }

  // With so many of the model's slots on the device.
  static EngineOptions with_slots(const std::filesystem::path& model, std::uint64_t slots,
                                  std::uint32_t sequences = 1) {
    EngineOptions options = test::fast_options(model);
    options.backend = Backend::kVulkan;
    options.cold_experts = ColdExperts::kCpu;
    options.sequences = sequences;
    const auto whole = open(options);
    if (whole == nullptr) return options;
    const VulkanPlan& plan = whole->device_use()->plan;
    const ModelConfig& config = whole->config();
    const std::uint64_t all = all_slots(config);
    options.vram_bytes = plan.fixed_bytes() + plan.all_expert_bytes / all * std::min(slots, all);
    return options;
  }

  // Layers with routed experts.
  static std::uint64_t routed_layers(const ModelConfig& config) {
    return static_cast<std::uint64_t>(
        std::count_if(config.layers.begin(), config.layers.end(), [](const LayerSpec& layer) {
          return std::holds_alternative<ExpertsSpec>(layer.feed_forward);
        }));
  }
  static std::uint64_t all_slots(const ModelConfig& config) {
    return routed_layers(config) * config.num_experts;
  }

  // Logits of all tokens, given in pieces of these sizes and then one by one.
  static std::vector<float> logits(Engine& engine, const Ids& ids,
                                   const std::vector<std::size_t>& pieces) {
    std::vector<float> all;
    const LogitsSink sink = [&](std::size_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
      return Status::ok();
    };
    engine.reset();
    std::span<const std::int32_t> rest(ids);
    for (std::size_t i = 0; !rest.empty(); ++i) {
      const std::size_t count = std::min(rest.size(), i < pieces.size() ? pieces[i] : 1);
      EXPECT_OK(engine.forward(rest.first(count), 0, sink));
      rest = rest.subspan(count);
    }
    return all;
  }

  // A prompt, a few rows at once and single tokens, twice: with the same bits. Gives the lanes of
  // the second run.
  static LaneTimes expect_like_reference(const EngineOptions& options) {
    const auto ours = open(options);
    const auto theirs = open(test::reference_options(options.model));
    if (ours == nullptr || theirs == nullptr) return {};
    const Ids ids = random_ids(40, ours->config().vocab_size);
    const std::vector<float> expected = logits(*theirs, ids, {40});
    const std::vector<float> given = logits(*ours, ids, {21, 5});
    EXPECT_LT(test::relative_error(given, expected), kTolerance);
    ours->reset_stats();
    EXPECT_EQ(logits(*ours, ids, {21, 5}), given) << "a second run";
    const LaneTimes lanes = ours->device_report()->lanes;
    const ModelConfig& config = ours->config();
    const std::uint64_t uses = 19 * routed_layers(config) * config.experts_per_token;
    EXPECT_EQ(lanes.hits + lanes.misses, ours->device_use()->plan.holds_all_experts() ? 0 : uses);
    return lanes;
  }

  // Hot shares of none, about 30 % and all, with the first experts of each layer.
  static void expect_all_shares(const std::filesystem::path& model) {
    const auto reference = open(test::reference_options(model));
    ASSERT_NE(reference, nullptr);
    const std::uint64_t all = all_slots(reference->config());
    EngineOptions none = with_slots(model, all - 1);
    none.hot_experts = HotSet{};
    const LaneTimes cold = expect_like_reference(none);
    EXPECT_EQ(cold.hits, 0U);
    EXPECT_EQ(cold.hot_layers, 0U);
    EXPECT_GT(cold.joined_layers, 0U);
    const LaneTimes some = expect_like_reference(with_slots(model, 4 * all / 10));
    EXPECT_GT(some.hits, 0U);
    EXPECT_GT(some.misses, 0U);
    EXPECT_GT(some.hot_seconds, 0);
    EXPECT_GT(some.cold_seconds, 0);
    EXPECT_GE(some.both_seconds, some.join_wait_seconds);
    EngineOptions resident = with_slots(model, all);
    resident.vram_bytes = 0;
    const LaneTimes hot = expect_like_reference(resident);
    EXPECT_EQ(hot.joined_layers, 0U);
  }

  test::TempDir dir_;
};

TEST_F(HybridModel, Qwen35MoeAtEveryHotShare) { expect_all_shares(tiny()); }

TEST_F(HybridModel, AffineCodesAtEveryHotShare) {
  expect_all_shares(tiny({.layout = test::TinyLayout::kMlx, .bits = 4, .group_size = 32}));
}

TEST_F(HybridModel, OlmoeAtEveryHotShare) {
  MOE_REQUIRE_MODEL(model, "families/olmoe");
  expect_all_shares(test::convert_for_test(model, dir_));
}

TEST_F(HybridModel, Qwen3MoeAtEveryHotShare) {
  MOE_REQUIRE_MODEL(model, "families/qwen3_moe");
  expect_all_shares(test::convert_for_test(model, dir_));
}

// A dense layer before the others, and a shared expert without a gate.
TEST_F(HybridModel, Glm4MoeAtEveryHotShare) {
  MOE_REQUIRE_MODEL(model, "families/glm4_moe");
  expect_all_shares(test::convert_for_test(model, dir_));
}

// Biases of experts, and an activation with limits.
TEST_F(HybridModel, GptOssAtEveryHotShare) {
  MOE_REQUIRE_MODEL(model, "families/gpt_oss");
  expect_all_shares(test::convert_for_test(model, dir_));
}

// Both lanes' sums are normed together, beside a branch of its own.
TEST_F(HybridModel, Gemma4AtEveryHotShare) {
  expect_all_shares(test::convert_for_test(test::gemma4_model(), dir_));
}

// Experts of several formats, whose results are added together.
TEST_F(HybridModel, Q4KAndQ6K) {
  MOE_REQUIRE_MODEL(model, "small-moe-Q4_K_M.gguf");
  const std::filesystem::path converted = test::convert_for_test(model, dir_);
  const auto reference = open(test::reference_options(converted));
  ASSERT_NE(reference, nullptr);
  const LaneTimes lanes =
      expect_like_reference(with_slots(converted, all_slots(reference->config()) / 2));
  EXPECT_GT(lanes.hits, 0U);
  EXPECT_GT(lanes.misses, 0U);
}

TEST_F(HybridModel, LayersWithoutHotExperts) {
  EngineOptions options = with_slots(tiny(), 12);
  options.hot_experts = HotSet{{0, 2, 4, 5, 1, 3}, {}, {5}};
  const LaneTimes lanes = expect_like_reference(options);
  EXPECT_GT(lanes.hot_layers, 0U) << "all of the first layer's are hot";
  EXPECT_GT(lanes.joined_layers, 0U);
}

// A token of a layer is the hot lane, and what joins it to the next layer.
TEST_F(HybridModel, TwoSubmissionsALayerAtMost) {
  const auto engine = open(with_slots(tiny(), 9));
  ASSERT_NE(engine, nullptr);
  const Ids ids = random_ids(3, engine->config().vocab_size);
  (void)logits(*engine, ids, {});
  engine->reset_stats();
  const DeviceReport before = *engine->device_report();
  (void)logits(*engine, ids, {});
  const DeviceReport after = *engine->device_report();
  EXPECT_EQ(after.work.submissions - before.work.submissions,
            3 * (1 + engine->config().num_layers) + after.lanes.joined_layers);
}

TEST_F(HybridModel, NeighboursChangeNoBit) {
  const auto engine = open(with_slots(tiny(), 10, 3));
  ASSERT_NE(engine, nullptr);
  std::vector<std::vector<float>> alone(3);
  std::vector<std::vector<float>> together(3);
  std::vector<Ids> ids;
  for (std::uint32_t s = 0; s < 3; ++s) {
    ids.push_back(random_ids(2, engine->config().vocab_size, s + 1));
  }
  const auto sink_of = [](std::vector<float>& to) {
    return [&to](std::size_t, std::span<const float> row) {
      to.insert(to.end(), row.begin(), row.end());
      return Status::ok();
    };
  };
  for (std::size_t s = 0; s < 3; ++s) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine->make_sequence());
    const Slice slice{&sequence, ids[s], 0, sink_of(alone[s])};
    EXPECT_OK(engine->forward(std::span(&slice, 1)).front());
  }
  std::vector<Sequence> sequences;
  for (std::size_t s = 0; s < 3; ++s) {
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine->make_sequence());
    sequences.push_back(std::move(sequence));
  }
  std::vector<Slice> slices;
  for (std::size_t s = 0; s < 3; ++s) {
    slices.push_back({&sequences[s], ids[s], 0, sink_of(together[s])});
  }
  for (const Status& status : engine->forward(slices)) EXPECT_OK(status);
  EXPECT_EQ(together, alone);
}

TEST_F(HybridModel, RefusesWhatHasNoRoom) {
  EngineOptions options = with_slots(tiny(), 2);  // a token uses three
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument,
                     {"device memory", "experts of one token", "--vram-mb"});
  options = with_slots(options.model, 5);
  options.hot_experts = HotSet{{0, 1, 2}};  // three of the five are for prompts
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument,
                     {"hot experts", "3", "room for 2"});
  options.hot_experts = HotSet{{6}};
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument,
                     {"expert 6 of layer 0"});
  options.hot_experts = HotSet{{1, 1}};
  test::expect_error(Engine::open(options).status(), StatusCode::kInvalidArgument, {"twice"});
}

// Who computes cold experts is the plan's to say; without the option nothing changes.
TEST_F(HybridModel, TheChoiceIsAnnounced) {
  EngineOptions options = with_slots(tiny(), 10);
  EXPECT_EQ(open(options)->device_use()->cold, ColdExperts::kCpu);
  options.cold_experts = ColdExperts::kFetch;
  EXPECT_EQ(open(options)->device_use()->cold, ColdExperts::kFetch);
  options.cold_experts = ColdExperts::kAuto;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->device_use()->cold_reason.empty());
}

TEST_F(HybridModel, ValidationLayersHaveNothingToSay) {
  std::vector<std::string> messages;
  EngineOptions options = with_slots(tiny(), 10);
  options.device_limits.validation = [&](const std::string& text) { messages.push_back(text); };
  options.device_limits.force_staging = true;
  const auto opened = Engine::open(options);
  if (!opened.is_ok()) GTEST_SKIP() << "SKIPPED: " << opened.status().message();
  const Ids ids = random_ids(16, opened.value()->config().vocab_size);
  (void)logits(*opened.value(), ids, {12});
  EXPECT_TRUE(messages.empty()) << messages.size() << " messages, first: " << messages.front();
}

TEST(ColdExpertsChoice, ReasonsFromTheMemory) {
  EXPECT_EQ(choose_cold_experts(ColdExperts::kAuto, true).way, ColdExperts::kFetch);
  EXPECT_EQ(choose_cold_experts(ColdExperts::kAuto, false).way, ColdExperts::kCpu);
  EXPECT_EQ(choose_cold_experts(ColdExperts::kCpu, true).way, ColdExperts::kCpu);
  EXPECT_EQ(choose_cold_experts(ColdExperts::kFetch, false).way, ColdExperts::kFetch);
  for (const char* name : {"fetch", "cpu", "auto"}) {
    EXPECT_EQ(cold_experts_name(parse_cold_experts(name).value()), name);
  }
  EXPECT_FALSE(parse_cold_experts("gpu").is_ok());
}

TEST(HotSet, FlatSharesDivideTheSlots) {
  const std::vector<std::uint32_t> sixes(3, 6);
  const HotSet hot = flat_hot_set(sixes, 10);
  EXPECT_EQ(hot, (HotSet{{0, 1, 2, 3}, {0, 1, 2}, {0, 1, 2}}));
  EXPECT_EQ(hot_count(hot), 10U);
  EXPECT_EQ(hot_count(flat_hot_set(sixes, 100)), 18U);
  const std::vector<std::uint32_t> dense_first = {0, 6, 2};
  EXPECT_EQ(flat_hot_set(dense_first, 6), (HotSet{{}, {0, 1, 2, 3}, {0, 1}}));
  EXPECT_FALSE(check_hot_set({{0}}, dense_first, 6).is_ok());
  EXPECT_EQ(share_slots(80, 4).hot, 70U);
  EXPECT_EQ(share_slots(10, 4).hot, 6U);
  EXPECT_EQ(share_slots(4, 4).hot, 0U);
}

}  // namespace
}  // namespace moepack::hybrid_model_test
