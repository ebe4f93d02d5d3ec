// Hot experts by a profile, and their exchange while an engine runs, against the reference backend.
// On a machine without a GPU a processor that plays one (lavapipe) serves; without that the tests
// are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "formats/base/paths.h"
#include "formats/calibration/expert_profile.h"
#include "formats/calibration/foreign_profile.h"
#include "runtime/placement/lane_report.h"
#include "tests/runtime/vulkan/driver_stays.h"
#include "tests/support/converted_model.h"
#include "tests/support/relative_error.h"
#include "tests/support/test_models.h"
#include "tests/support/tiny_model.h"
#include "tests/support/vulkan_devices.h"

namespace moepack::hot_exchange_test {
namespace {

using TokenIds = std::vector<std::int32_t>;

constexpr double kExchangeTolerance = 1.5e-5;  // float32 sums in another order

TokenIds ids_of(std::size_t count, std::uint32_t vocab, std::uint32_t seed) {
  std::mt19937 random(seed);
  TokenIds ids(count);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % vocab);
  return ids;
}

class HotExchange : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!DriverStays::reason().empty()) GTEST_SKIP() << "SKIPPED: " << DriverStays::reason();
    use_model(dir_, {});
  }

  void use_model(const test::TempDir& dir, const test::TinyModelOptions& shape) {
    test::write_tiny_model(dir / "checkpoint", shape);
    model_ = test::convert_for_test(dir / "checkpoint", dir);
    reference_ = open(test::reference_options(model_));
    options_ = test::fast_options(model_);
    options_.backend = Backend::kVulkan;
    options_.cold_experts = ColdExperts::kCpu;
    const auto whole = open(options_);
    ASSERT_NE(whole, nullptr);
    const VulkanPlan& plan = whole->device_use()->plan;
    all_ = std::uint64_t{whole->config().num_layers} * whole->config().num_experts;
    slot_bytes_ = plan.all_expert_bytes / all_;
    fixed_bytes_ = plan.fixed_bytes();
    set_slots(all_ / 2);
  }

  void set_slots(std::uint64_t slots) { options_.vram_bytes = fixed_bytes_ + slot_bytes_ * slots; }

  // Two devices, or one as two, each with half of the layers and room for about half of the
  // experts, of which there are so many that the rest of the model is small beside them.
  void use_two_devices() {
    use_model(other_dir_, {.num_experts = 24});
    options_.devices = test::alike_devices(2);
    options_.tensor_split = {1, 1};
    options_.vram_bytes = 0;
    const auto whole = open(options_);
    ASSERT_NE(whole, nullptr);
    const VulkanPlan& both = whole->device_use()->plan;
    options_.vram_bytes = both.fixed_bytes() / 2 + both.all_expert_bytes / 4;
  }

  static std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return engine.is_ok() ? std::move(engine).value() : nullptr;
  }

  static std::vector<float> logits(Engine& engine, const TokenIds& ids) {
    std::vector<float> all;
    const LogitsSink sink = [&](std::size_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
      return Status::ok();
    };
    engine.reset();
    for (const std::int32_t& id : ids) EXPECT_OK(engine.forward(std::span(&id, 1), 0, sink));
    return all;
  }

  void expect_like_reference(Engine& engine, const TokenIds& ids) {
    EXPECT_LT(test::relative_error(logits(engine, ids), logits(*reference_, ids)),
              kExchangeTolerance);
  }

  // A profile in which the last experts of each layer are used most.
  ExpertProfile last_experts() const {
    const ModelConfig& config = reference_->config();
    ExpertProfile profile;
    profile.model = directory_name(model_);
    profile.shape = {config.num_layers, config.num_experts};
    profile.layers.resize(config.num_layers);
    for (LayerProfile& layer : profile.layers) {
      for (std::uint32_t e = 0; e < config.num_experts; ++e) layer.counts.push_back(10 * e);
    }
    return profile;
  }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }

  test::TempDir dir_;
  test::TempDir other_dir_;  // of a model with more experts
  std::filesystem::path model_;
  std::unique_ptr<Engine> reference_;
  EngineOptions options_;
  std::uint64_t all_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t fixed_bytes_ = 0;
};

TEST_F(HotExchange, AProfileDecidesWhatIsKept) {
  options_.hot.profile = write("profile.json", expert_profile_text(last_experts()));
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  const HotPlan& plan = engine->device_use()->hot;
  ASSERT_TRUE(plan.set.has_value());
  EXPECT_EQ(hot_count(*plan.set), plan.slots);
  const std::uint32_t last = engine->config().num_experts - 1;
  for (const auto& layer : *plan.set) {
    ASSERT_FALSE(layer.empty());
    EXPECT_EQ(layer.back(), last);
    EXPECT_NE(layer.front(), 0U);
  }
  EXPECT_GT(plan.hit_share, static_cast<double>(plan.slots) / static_cast<double>(all_));
  expect_like_reference(*engine, ids_of(12, engine->config().vocab_size, 1));
}

// Each of several devices keeps what the profile says of its own layers, and exchanges it after
// requests; counts and reports are of the whole model.
TEST_F(HotExchange, SeveralDevicesKeepExpertsOfTheirOwnLayers) {
  use_two_devices();
  options_.hot.profile = write("profile.json", expert_profile_text(last_experts()));
  options_.hot.update_rate = 0.25;
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  const ModelConfig& config = engine->config();
  const HotPlan plan = engine->device_use()->hot;
  ASSERT_TRUE(plan.set.has_value()) << plan.reason;
  ASSERT_EQ(plan.set->size(), config.num_layers);
  EXPECT_EQ(hot_count(*plan.set), plan.slots);
  for (const auto& layer : *plan.set) {
    ASSERT_FALSE(layer.empty());
    EXPECT_EQ(layer.back(), config.num_experts - 1);
  }
  EXPECT_GT(plan.hit_share, static_cast<double>(plan.slots) / static_cast<double>(all_));
  const TokenIds topic = ids_of(24, config.vocab_size, 7);
  expect_like_reference(*engine, topic);
  const LaneTimes first = engine->device_report()->lanes;
  ASSERT_OK_AND_ASSIGN(const HotChange change, engine->adapt_hot_experts());
  EXPECT_TRUE(change.is_active);
  EXPECT_GT(change.exchanged, 0U);
  EXPECT_EQ(change.hot, plan.slots);
  engine->reset_stats();
  expect_like_reference(*engine, topic);
  EXPECT_GT(engine->device_report()->lanes.hits, first.hits);
  const std::optional<LaneUse> use = engine->lane_use();
  ASSERT_TRUE(use.has_value());
  ASSERT_EQ(use->layers.size(), config.num_layers);
  for (const LayerLanes& layer : use->layers) {
    EXPECT_EQ(layer.all_uses(), 2 * 24 * config.experts_per_token);
  }
  const std::string text = expert_profile_text(last_experts());
  ASSERT_OK_AND_ASSIGN(const HotChange applied, engine->apply_hot_profile(text, "body"));
  EXPECT_EQ(applied.exchanged, applied.candidates);
  const auto planned = open(options_);
  ASSERT_NE(planned, nullptr);
  EXPECT_EQ(logits(*engine, topic), logits(*planned, topic)) << "as if it had begun so";
}

TEST_F(HotExchange, ASetOfHotExpertsIsDividedAmongDevices) {
  use_two_devices();
  HotSet set(reference_->config().num_layers);
  for (std::size_t l = 0; l < set.size(); ++l) set[l] = {static_cast<std::uint32_t>(l % 2)};
  options_.hot_experts = set;
  options_.hot.counts = true;
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  const TokenIds ids = ids_of(16, engine->config().vocab_size, 9);
  expect_like_reference(*engine, ids);
  const std::optional<LaneUse> use = engine->lane_use();
  ASSERT_TRUE(use.has_value());
  for (std::size_t l = 0; l < set.size(); ++l) {
    const LayerLanes& layer = use->layers[l];
    for (std::size_t e = 0; e < layer.hot.size(); ++e) {
      EXPECT_TRUE(e == l % 2 ? layer.cold[e] == 0 : layer.hot[e] == 0) << l << ' ' << e;
    }
  }
}

TEST_F(HotExchange, WrongProfilesAreRefused) {
  ExpertProfile profile = last_experts();
  profile.model = "another";
  options_.hot.profile = write("other.json", expert_profile_text(profile));
  test::expect_error(Engine::open(options_).status(), StatusCode::kInvalidArgument,
                     {"other.json", "another"});
  profile = last_experts();
  profile.layers.pop_back();
  --profile.shape.num_layers;
  options_.hot.profile = write("short.json", expert_profile_text(profile));
  EXPECT_NE(Engine::open(options_).status().message().find("short.json"), std::string::npos);
  const std::string whole = expert_profile_text(last_experts());
  options_.hot.profile = write("damaged.json", whole.substr(0, whole.size() / 2));
  test::expect_error(Engine::open(options_).status(), StatusCode::kCorrupt, {"damaged.json"});
  options_.hot.profile = dir_ / "none.json";
  EXPECT_FALSE(Engine::open(options_).is_ok());
  options_.hot.profile = write("fine.json", whole);
  options_.cold_experts = ColdExperts::kFetch;
  test::expect_error(Engine::open(options_).status(), StatusCode::kInvalidArgument,
                     {"--hot-profile", "--cold-experts"});
}

TEST_F(HotExchange, NoRoomForAHotExpertIsSaid) {
  options_.hot.profile = write("profile.json", expert_profile_text(last_experts()));
  set_slots(reference_->config().experts_per_token);
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->device_use()->hot.slots, 0U);
  EXPECT_NE(engine->device_use()->hot.reason.find("--vram-mb"), std::string::npos);
  expect_like_reference(*engine, ids_of(4, engine->config().vocab_size, 1));
}

// Exchanges happen in place: logits stay those of the reference, hits rise to what requests use,
// and the device has as many slots as before.
TEST_F(HotExchange, AdaptsAfterRequests) {
  options_.hot.update_rate = 0.25;
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  const TokenIds topic = ids_of(24, engine->config().vocab_size, 7);
  const VulkanPlan before = engine->device_use()->plan;
  std::uint64_t exchanged = 0;
  engine->reset_stats();
  expect_like_reference(*engine, topic);
  const LaneTimes first = engine->device_report()->lanes;
  const std::uint64_t taken = engine->device_report()->taken_bytes;
  for (int request = 0; request < 8; ++request) {
    ASSERT_OK_AND_ASSIGN(const HotChange change, engine->adapt_hot_experts());
    EXPECT_TRUE(change.is_active);
    EXPECT_LE(change.exchanged, change.most);
    EXPECT_EQ(change.hot, engine->device_use()->hot.slots);
    exchanged += change.exchanged;
    engine->reset_stats();
    expect_like_reference(*engine, topic);
  }
  const LaneTimes last = engine->device_report()->lanes;
  EXPECT_GT(exchanged, 0U);
  EXPECT_GT(last.hits, first.hits);
  EXPECT_EQ(last.hits + last.misses, first.hits + first.misses);
  EXPECT_EQ(engine->device_report()->taken_bytes, taken);
  EXPECT_EQ(engine->device_use()->plan.total_bytes(), before.total_bytes());
  // Prompts, which fetch what is not kept, still see the right experts.
  std::vector<float> given;
  std::vector<float> expected;
  for (auto [from, to] : {std::pair{engine.get(), &given}, {reference_.get(), &expected}}) {
    from->reset();
    EXPECT_OK(from->forward(topic, topic.size() - 1, [&, to = to](std::size_t, auto row) {
      to->assign(row.begin(), row.end());
      return Status::ok();
    }));
  }
  EXPECT_LT(test::relative_error(given, expected), kExchangeTolerance);
}

TEST_F(HotExchange, WithoutARateNothingIsExchangedOrCounted) {
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  const TokenIds ids = ids_of(6, engine->config().vocab_size, 2);
  const std::vector<float> before = logits(*engine, ids);
  ASSERT_OK_AND_ASSIGN(const HotChange change, engine->adapt_hot_experts());
  EXPECT_FALSE(change.is_active);
  EXPECT_EQ(logits(*engine, ids), before);
  EXPECT_FALSE(engine->lane_use().has_value());
}

TEST_F(HotExchange, AProfileIsAppliedAtRunTime) {
  const auto engine = open(options_);
  const auto planned = [&] {
    EngineOptions options = options_;
    options.hot.profile = write("profile.json", expert_profile_text(last_experts()));
    return open(options);
  }();
  ASSERT_NE(engine, nullptr);
  ASSERT_NE(planned, nullptr);
  const TokenIds ids = ids_of(10, engine->config().vocab_size, 3);
  const std::string text = expert_profile_text(last_experts());
  ASSERT_OK_AND_ASSIGN(const HotChange change, engine->apply_hot_profile(text, "body"));
  EXPECT_TRUE(change.is_active);
  EXPECT_GT(change.exchanged, 0U);
  EXPECT_EQ(change.exchanged, change.candidates);
  EXPECT_EQ(logits(*engine, ids), logits(*planned, ids)) << "as if it had begun so";
  test::expect_error(engine->apply_hot_profile("{", "body").status(), StatusCode::kCorrupt,
                     {"body"});
  ASSERT_OK_AND_ASSIGN(const HotChange again, engine->apply_hot_profile(text, "body"));
  EXPECT_EQ(again.exchanged, 0U);
}

TEST_F(HotExchange, LaneReportsAddUpAndReadBack) {
  options_.hot.counts = true;
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  const ModelConfig& config = engine->config();
  engine->reset_stats();
  (void)logits(*engine, ids_of(9, config.vocab_size, 4));
  const LaneTimes lanes = engine->device_report()->lanes;
  const std::optional<LaneUse> use = engine->lane_use();
  ASSERT_TRUE(use.has_value());
  std::uint64_t hot = 0;
  std::uint64_t cold = 0;
  double waited = 0;
  for (const LayerLanes& layer : use->layers) {
    EXPECT_EQ(layer.calls, 9U);
    EXPECT_EQ(layer.hot_uses() + layer.cold_uses(), 9U * config.experts_per_token);
    EXPECT_GE(layer.times.total, layer.times.cold);
    hot += layer.hot_uses();
    cold += layer.cold_uses();
    waited += layer.times.join_wait;
  }
  EXPECT_EQ(hot, lanes.hits);
  EXPECT_EQ(cold, lanes.misses);
  EXPECT_NEAR(waited, lanes.join_wait_seconds * 1e6, 1e-3 * waited + 1);
  const std::uint64_t alone = use->fallbacks[static_cast<std::size_t>(LaneFallback::kNoColdChosen)];
  EXPECT_EQ(alone, lanes.hot_layers);
  // A prompt is fetched for.
  const TokenIds prompt = ids_of(20, config.vocab_size, 5);
  engine->reset();
  EXPECT_OK(engine->forward(prompt, 19, [](std::size_t, auto) { return Status::ok(); }));
  EXPECT_EQ(engine->lane_use()->fallbacks[static_cast<std::size_t>(LaneFallback::kFetched)],
            config.num_layers);
  ASSERT_OK_AND_ASSIGN(const HotChange change,
                       engine->apply_hot_profile(lane_report_text(*use), "report"));
  EXPECT_TRUE(change.is_active);
}

TEST_F(HotExchange, TheReportIsWrittenAtTheEnd) {
  options_.hot.report = dir_ / "lanes.json";
  const auto engine = open(options_);
  ASSERT_NE(engine, nullptr);
  (void)logits(*engine, ids_of(3, engine->config().vocab_size, 4));
  ASSERT_OK(engine->finish());
  ASSERT_OK_AND_ASSIGN(const ProfileInput input,
                       read_profile_input(options_.hot.report, last_experts().shape));
  EXPECT_EQ(layer_uses(input.profile.layers[0]), 3U * engine->config().experts_per_token);
}

}  // namespace
}  // namespace moepack::hot_exchange_test
