// What the engine's cache does and what a replay of its trace says are the same, use by use; and no
// policy, budget or list of kept experts changes a bit of the logits.
#include <gtest/gtest.h>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "formats/calibration/expert_profile.h"
#include "formats/calibration/trace_file.h"
#include "formats/model_dir.h"
#include "runtime/replay/replay.h"
#include "tests/support/converted_model.h"
#include "tests/support/tiny_model.h"

namespace moepack::engine_replay_test {
namespace {

constexpr std::uint32_t kLayers = 4;
constexpr std::uint32_t kExperts = 24;

class EngineReplayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    test::write_tiny_model(dir_ / "checkpoint", {.num_experts = kExperts});
    model_ = test::convert_for_test(dir_ / "checkpoint", dir_);
    ASSERT_FALSE(model_.empty());
    ASSERT_OK_AND_ASSIGN(const ModelDir dir, open_model_dir(model_, "", {}));
    record_ = record_memory_bytes(dir.pack.layouts.front().record_bytes);
    floor_ = record_ * dir.config.experts_per_token * kLayers;
    fingerprint_ = dir.pack.source.fingerprint;
  }

  EngineOptions options(std::uint64_t cache, CachePolicy policy) const {
    EngineOptions options = test::reference_options(model_);
    options.cache_bytes = cache;
    options.chunk_tokens = 16;
    options.store.policy = policy;
    options.store.trace = dir_ / "trace";
    return options;
  }

  // A prompt of several chunks, then tokens one by one. The logits of all of them.
  static void run(Engine& engine, std::vector<float>& logits) {
    const LogitsSink sink = [&](std::size_t, std::span<const float> row) {
      logits.insert(logits.end(), row.begin(), row.end());
      return Status::ok();
    };
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < 90; ++i) ids.push_back((i * i * 31 + 7) % 262);
    ASSERT_OK(engine.forward(std::span(ids).first(40), 0, sink));
    for (std::size_t i = 40; i < ids.size(); ++i) {
      ASSERT_OK(engine.forward(std::span(ids).subspan(i, 1), 0, sink));
    }
  }

  void write_profile(const std::string& name) const {
    ExpertProfile profile;
    profile.model = name;
    profile.shape = {kLayers, kExperts};
    profile.experts_per_token = 3;
    profile.layers.resize(kLayers);
    for (LayerProfile& layer : profile.layers) {
      for (std::uint64_t e = 0; e < kExperts; ++e) layer.counts.push_back(e * 7 % 24);
    }
    std::ofstream(dir_ / "profile.json") << expert_profile_text(profile);
  }

  // The trace through a cache of the engine's size, against the engine's own counts.
  void expect_same_counts(const ExpertStoreStats& stats, std::uint64_t cache, CachePolicy policy,
                          bool has_pins) const {
    ASSERT_OK_AND_ASSIGN(const auto source, open_trace(dir_ / "trace"));
    const TraceModel& model = source->model();
    EXPECT_EQ(token_record_memory(model), floor_);
    KeptRecords kept;
    if (has_pins) {
      const ProfiledModel profiled{.name = model.name,
                                   .source_fingerprint = fingerprint_,
                                   .shape = {model.num_layers, model.num_experts},
                                   .experts_per_token = model.experts_per_token};
      ASSERT_OK_AND_ASSIGN(
          kept, read_kept_records(
                    dir_ / "profile.json", profiled,
                    [&](std::uint32_t l, std::uint32_t e) { return model.bytes_of(l, e); },
                    cache - floor_));
    }
    ASSERT_OK_AND_ASSIGN(const auto replay, CacheReplay::create(model, cache, policy, kept));
    CacheUse sum;
    std::uint64_t passes = 0;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const TracePass* const pass, source->next());
      if (pass == nullptr) break;
      ++passes;
      ASSERT_EQ(pass->layers.size(), kLayers);
      for (const TraceLayer& layer : pass->layers) {
        ASSERT_OK_AND_ASSIGN(const CacheUse use, replay->run(layer));
        ASSERT_EQ(use.misses, layer.misses) << "pass " << passes << " layer " << layer.layer;
        sum += use;
      }
    }
    EXPECT_EQ(passes, 3U + 50U);
    EXPECT_EQ(sum.hits, stats.hits);
    EXPECT_EQ(sum.misses, stats.misses);
    EXPECT_EQ(sum.missed_bytes, stats.bytes_read);
    EXPECT_EQ(source->cut_bytes(), 0U);
  }

  test::TempDir dir_;
  std::filesystem::path model_;
  std::uint64_t record_ = 0;
  std::uint64_t floor_ = 0;
  std::uint64_t fingerprint_ = 0;
};

TEST_F(EngineReplayTest, CountsAreTheEnginesWhateverBudgetAndPolicy) {
  write_profile("model");
  std::vector<float> first;
  std::vector<std::uint64_t> misses;
  for (const std::uint64_t cache : {floor_, floor_ + 7 * record_, 2 * floor_, 8 * floor_}) {
    for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kLfru}) {
      for (const bool has_pins : {false, true}) {
        EngineOptions opened = options(cache, policy);
        if (has_pins) opened.store.pinned = dir_ / "profile.json";
        ExpertStoreStats stats;
        std::vector<float> logits;
        {
          ASSERT_OK_AND_ASSIGN(const auto engine, Engine::open(opened));
          run(*engine, logits);
          stats = engine->expert_stats();
        }
        expect_same_counts(stats, cache, policy, has_pins);
        misses.push_back(stats.misses);
        if (first.empty()) first = logits;
        ASSERT_EQ(first.size(), logits.size());
        EXPECT_EQ(std::memcmp(first.data(), logits.data(), first.size() * sizeof(float)), 0);
      }
    }
  }
  EXPECT_LT(misses.back(), misses.front()) << "the budget makes no difference";
  EXPECT_NE(misses[4], misses[6]) << "the policies make no difference";
  EXPECT_NE(misses[4], misses[5]) << "what is kept makes no difference";
}

TEST_F(EngineReplayTest, AProfileOfAnotherModelIsRefused) {
  write_profile("other");
  EngineOptions opened = options(8 * floor_, CachePolicy::kLru);
  opened.store.pinned = dir_ / "profile.json";
  test::expect_error(Engine::open(opened).status(), StatusCode::kInvalidArgument,
                     {"profile.json", "model and other"});
  EXPECT_FALSE(std::filesystem::exists(dir_ / "trace")) << "there was nothing to record";
}

// The last block is written when the engine ends, and the model in the trace is this one.
TEST_F(EngineReplayTest, TheTraceNamesItsModel) {
  {
    ASSERT_OK_AND_ASSIGN(const auto engine, Engine::open(options(0, CachePolicy::kLru)));
    std::vector<float> logits;
    run(*engine, logits);
  }
  ASSERT_OK_AND_ASSIGN(const auto source, open_trace(dir_ / "trace"));
  EXPECT_EQ(source->model().name, "model");
  EXPECT_NE(source->model().fingerprint, 0U);
  EXPECT_EQ(source->model().num_experts, kExperts);
  ASSERT_OK_AND_ASSIGN(const TraceTimes times, measure_trace(*source, 0));
  EXPECT_EQ(times.tokens, 90U);
  EXPECT_EQ(times.single_passes, 50U);
  EXPECT_GT(times.single_seconds, 0.0);
}

TEST_F(EngineReplayTest, ATraceThatCannotBeWrittenEndsTheRun) {
  EngineOptions opened = options(0, CachePolicy::kLru);
  opened.store.trace = "/dev/full";
  test::expect_error(Engine::open(opened).status(), StatusCode::kInvalidArgument, {"/dev/full"});
}

// Cache-aware routing reads less, says how much it changed, and says so in no other way than by
// its choices: with M = K nothing changes.
TEST_F(EngineReplayTest, CacheAwareRoutingReadsLessAndSaysWhatItChanged) {
  const auto run_with = [&](std::uint32_t always, std::uint32_t among, std::vector<float>& logits) {
    EngineOptions opened = test::fast_options(model_);
    opened.cache_bytes = 2 * floor_;
    opened.chunk_tokens = 16;
    opened.car = {.always = always, .among = among};
    auto engine = Engine::open(opened);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    run(*engine.value(), logits);
    return std::pair(engine.value()->expert_stats(), engine.value()->routing_agreement());
  };
  std::vector<float> exact;
  std::vector<float> same;
  std::vector<float> other;
  std::vector<float> again;
  const auto [exact_stats, exact_agreement] = run_with(0, 0, exact);
  EXPECT_EQ(exact_agreement.choices, 0U);
  const auto [same_stats, same_agreement] = run_with(0, 3, same);
  EXPECT_EQ(same_stats.misses, exact_stats.misses);
  EXPECT_EQ(same_agreement.choices, 90U * 3 * kLayers);
  EXPECT_EQ(same_agreement.share(), 1.0);
  ASSERT_EQ(exact.size(), same.size());
  EXPECT_EQ(std::memcmp(exact.data(), same.data(), exact.size() * sizeof(float)), 0);
  const auto [stats, agreement] = run_with(1, 9, other);
  EXPECT_LT(stats.misses, exact_stats.misses);
  EXPECT_LT(agreement.share(), 1.0);
  EXPECT_GT(agreement.share(), 1.0 / 3) << "the first is always kept";
  // The cache is the same, so are the choices.
  (void)run_with(1, 9, again);
  EXPECT_EQ(std::memcmp(other.data(), again.data(), other.size() * sizeof(float)), 0);
}

TEST_F(EngineReplayTest, CacheAwareRoutingIsRefusedWhereItIsNotOffered) {
  EngineOptions opened = options(0, CachePolicy::kLru);
  opened.car = {.always = 1, .among = 9};
  test::expect_error(Engine::open(opened).status(), StatusCode::kUnsupported,
                     {"reference backend", "--car"});
  opened.backend = Backend::kCpu;
  opened.cpu_level = detect_cpu_level();
  opened.saves_sequence = true;
  test::expect_error(Engine::open(opened).status(), StatusCode::kUnsupported, {"--prompt-cache"});
  opened.saves_sequence = false;
  for (const auto& [always, among] : {std::pair(4U, 9U), std::pair(1U, 2U), std::pair(1U, 25U)}) {
    opened.car = {.always = always, .among = among};
    test::expect_error(Engine::open(opened).status(), StatusCode::kInvalidArgument,
                       {"J <= 3 <= M <= 24"});
  }
}

}  // namespace
}  // namespace moepack::engine_replay_test
