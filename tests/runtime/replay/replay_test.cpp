#include "runtime/replay/replay.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <list>
#include <map>

#include "runtime/replay/synthetic_trace.h"
#include "tests/support/status_matchers.h"

namespace moepack::replay_test {
namespace {

SyntheticTrace small_trace() {
  SyntheticTrace spec;
  spec.layers = 4;
  spec.experts = 16;
  spec.experts_per_token = 3;
  spec.record_bytes = 5000;  // two pages in memory
  spec.tokens = 400;
  spec.zipf = 0.7;
  spec.locality = 0.2;
  return spec;
}

// The least recently used records as a list: what is pinned by the batch does not leave.
CacheUse brute_force_lru(const SyntheticTrace& spec, std::size_t records, std::uint64_t skip) {
  const auto source = make_synthetic_trace(spec);
  std::list<std::uint64_t> recency;  // back: most recently used
  CacheUse use;
  for (std::uint64_t seen = 0;; ++seen) {
    const TracePass* pass = source->next().value();
    if (pass == nullptr) return use;
    for (const TraceLayer& layer : pass->layers) {
      std::vector<std::uint64_t> missing;
      CacheUse now;
      for (const TraceUse& u : layer.uses) {
        const std::uint64_t key = layer.layer * spec.experts + u.expert;
        const auto found = std::find(recency.begin(), recency.end(), key);
        if (found == recency.end()) {
          missing.push_back(key);
          continue;
        }
        recency.splice(recency.end(), recency, found);
        ++now.hits;
      }
      for (const std::uint64_t key : missing) {
        if (recency.size() == records) recency.pop_front();
        recency.push_back(key);
        ++now.misses;
        now.missed_bytes += spec.record_bytes;
      }
      if (seen >= skip) use += now;
    }
  }
}

TEST(Replay, CountsWhatAListOfRecordsCounts) {
  const SyntheticTrace spec = small_trace();
  const auto source = make_synthetic_trace(spec);
  const std::vector<std::uint64_t> records{12, 20, 33, 64};
  std::vector<std::unique_ptr<CacheReplay>> caches;
  for (const std::uint64_t count : records) {
    ASSERT_OK_AND_ASSIGN(
        auto cache, CacheReplay::create(source->model(), count * 8192 + 8191, CachePolicy::kLru));
    caches.push_back(std::move(cache));
  }
  for (const std::uint64_t skip : {0U, 37U}) {
    std::vector<std::unique_ptr<CacheReplay>> fresh;
    for (const std::uint64_t count : records) {
      fresh.push_back(
          CacheReplay::create(source->model(), count * 8192 + 8191, CachePolicy::kLru).value());
    }
    ASSERT_OK_AND_ASSIGN(const auto results,
                         replay_trace(*source, fresh, SpeedModel({}, {}), skip));
    for (std::size_t i = 0; i < records.size(); ++i) {
      const CacheUse expected = brute_force_lru(spec, records[i], skip);
      EXPECT_EQ(results[i].use().hits, expected.hits) << records[i];
      EXPECT_EQ(results[i].use().misses, expected.misses);
      EXPECT_EQ(results[i].use().missed_bytes, expected.missed_bytes);
      EXPECT_EQ(results[i].decode.tokens, spec.tokens - skip);
    }
  }
}

TEST(Replay, ABudgetBelowTheFloorIsRefused) {
  const auto source = make_synthetic_trace(small_trace());
  EXPECT_EQ(token_record_memory(source->model()), 4U * 3 * 8192);
  EXPECT_EQ(all_record_memory(source->model()), 4U * 16 * 8192);
  test::expect_error(
      CacheReplay::create(source->model(), 4 * 3 * 8192 - 1, CachePolicy::kLfru).status(),
      StatusCode::kInvalidArgument, {"98303", "98304", "--cache-mb 1"});
}

constexpr double kTick = 1e-6;

TracePass timed_pass() {
  TracePass pass{.tokens = 1, .head_us = 100, .layers = {}};
  pass.layers.push_back(
      {.layer = 0, .mix_us = 30, .expert_us = 40, .uses = {{0, 1}, {1, 1}, {2, 1}, {3, 1}}});
  pass.layers.push_back({.layer = 1, .mix_us = 30, .expert_us = 40, .uses = {{0, 1}, {1, 1}}});
  return pass;
}

TEST(SpeedModel, IsTheArithmeticThatItStates) {
  const TracePass pass = timed_pass();
  TraceTimes times{.passes = 1, .tokens = 1, .single_passes = 1, .single_seconds = 240 * kTick};
  times.reading = ReadSpeed{5 * kTick, 1e9};
  const SpeedModel model(times, {});
  EXPECT_NEAR(model.token_seconds(), 240 * kTick, 1e-12);
  EXPECT_NEAR(model.head_seconds(pass), 100 * kTick, 1e-12);
  const auto layer = [&](const CacheUse& use) {
    return model.layer_seconds(pass, pass.layers[0], use) / kTick;
  };
  EXPECT_NEAR(layer({.hits = 4}), 70, 1e-6);
  // 10,000 bytes: 5 + 10 us, hidden behind three quarters of the experts.
  EXPECT_NEAR(layer({.hits = 3, .misses = 1, .missed_bytes = 10000}), 30 + 40, 1e-6);
  EXPECT_NEAR(layer({.hits = 0, .misses = 4, .missed_bytes = 100000}), 30 + 105 + 10, 1e-6);
  times.overlap = {.share = 0.25, .delay_seconds = 7 * kTick};
  EXPECT_NEAR(SpeedModel(times, {}).layer_seconds(pass, pass.layers[0],
                                                  {.hits = 3, .misses = 1, .missed_bytes = 10000}) /
                  kTick,
              30 + 40 + (15 + 7 - 10), 1e-6);
}

TEST(SpeedModel, SettingsReplaceWhatTheTraceSays) {
  const TracePass pass = timed_pass();
  TraceTimes times{.passes = 1, .tokens = 1, .single_passes = 1, .single_seconds = 240 * kTick};
  times.reading = ReadSpeed{5 * kTick, 1e9};
  const SpeedModel model(times, {.reading = ReadSpeed{0, 2e9}, .token_seconds = 2 * 240 * kTick});
  EXPECT_NEAR(model.head_seconds(pass) / kTick, 200, 1e-6);
  EXPECT_NEAR(model.layer_seconds(pass, pass.layers[0], {.hits = 4}) / kTick, 140, 1e-6);
  EXPECT_NEAR(model.read_seconds({.misses = 1, .missed_bytes = 2000}) / kTick, 1, 1e-6);
  // A trace without times: what is given is spread over the layers.
  TracePass bare = pass;
  bare.head_us = 0;
  for (TraceLayer& layer : bare.layers) layer.mix_us = layer.expert_us = 0;
  const SpeedModel given({.passes = 1}, {.token_seconds = 100 * kTick});
  EXPECT_TRUE(given.knows_computing());
  EXPECT_FALSE(given.knows_reading());
  EXPECT_NEAR(given.layer_seconds(bare, bare.layers[0], {.hits = 4}) / kTick, 50, 1e-6);
  EXPECT_FALSE(SpeedModel({}, {}).knows_computing());
}

// A source of passes that were written down.
class ListSource final : public TraceSource {
 public:
  ListSource(TraceModel model, std::vector<TracePass> passes)
      : model_(std::move(model)), passes_(std::move(passes)) {}
  const TraceModel& model() const override { return model_; }
  Result<const TracePass*> next() override {
    if (at_ == passes_.size()) return static_cast<const TracePass*>(nullptr);
    return static_cast<const TracePass*>(&passes_[at_++]);
  }
  Status rewind() override {
    at_ = 0;
    return Status::ok();
  }

 private:
  TraceModel model_;
  std::vector<TracePass> passes_;
  std::size_t at_ = 0;
};

// Where all layers miss 7 or 8 of 8, nothing can be said of the time before the first byte.
TEST(SpeedModel, LayersThatMissAlikeTellARateAlone) {
  TraceModel model{.name = "m",
                   .fingerprint = 0,
                   .num_layers = 1,
                   .num_experts = 8,
                   .experts_per_token = 8,
                   .record_bytes = {5000},
                   .size_of = {}};
  std::vector<TracePass> passes;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const std::uint32_t misses = 7 + i % 2;
    TraceLayer layer{.layer = 0, .mix_us = 10, .expert_us = 20, .misses = misses};
    for (std::uint32_t e = 0; e < 8; ++e) layer.uses.push_back({e, 1});
    layer.read_us = 195 + i % 2 * 10;  // a line through both would begin at 125 us
    passes.push_back({.tokens = 1, .head_us = 0, .layers = {layer}});
  }
  ListSource source(model, passes);
  ASSERT_OK_AND_ASSIGN(const TraceTimes times, measure_trace(source, 0));
  ASSERT_TRUE(times.reading.has_value());
  EXPECT_EQ(times.reading->first_seconds, 0);
  EXPECT_NEAR(times.reading->bytes_per_second, 7.5 * 5000 / 200e-6, 1e3);
}

TEST(SpeedModel, TheDiskIsToldFromTheTimesOfReads) {
  // 200 us, and 25 us a record of 5,000 bytes: 0.2 GB/s.
  TraceModel model{.name = "m",
                   .fingerprint = 0,
                   .num_layers = 1,
                   .num_experts = 8,
                   .experts_per_token = 8,
                   .record_bytes = {5000},
                   .size_of = {}};
  std::vector<TracePass> passes;
  for (std::uint32_t i = 0; i < 100; ++i) {
    const std::uint32_t misses = i % 5;
    TraceLayer layer{.layer = 0, .mix_us = 10, .expert_us = 20, .misses = misses};
    for (std::uint32_t e = 0; e < 8; ++e) layer.uses.push_back({e, 1});
    layer.read_us = misses == 0 ? 0 : 200 + misses * 25;
    layer.wait_us = misses == 0 ? 0 : layer.read_us - 8;  // 40 % of the experts' 20 us
    passes.push_back({.tokens = 1, .head_us = 0, .layers = {layer}});
  }
  ListSource source(model, passes);
  ASSERT_OK_AND_ASSIGN(const TraceTimes times, measure_trace(source, 0));
  EXPECT_EQ(times.passes, 100U);
  EXPECT_NEAR(times.single_seconds, 100 * 30e-6, 1e-9);
  ASSERT_TRUE(times.reading.has_value());
  EXPECT_NEAR(times.reading->first_seconds, 200e-6, 1e-9);
  EXPECT_NEAR(times.reading->bytes_per_second, 0.2e9, 1e3);
  EXPECT_NEAR(times.overlap.share, 0.4, 1e-4);
  EXPECT_EQ(times.overlap.delay_seconds, 0);
  for (TracePass& pass : passes) {
    TraceLayer& layer = pass.layers[0];
    if (layer.misses > 0) layer.wait_us = layer.read_us + 12;
  }
  ListSource late(model, passes);
  ASSERT_OK_AND_ASSIGN(const TraceTimes delayed, measure_trace(late, 0));
  EXPECT_EQ(delayed.overlap.share, 0);
  EXPECT_NEAR(delayed.overlap.delay_seconds, 12e-6, 1e-12);
  ASSERT_OK(source.rewind());
  ASSERT_OK_AND_ASSIGN(const TraceTimes few, measure_trace(source, 95));
  EXPECT_FALSE(few.reading.has_value());
}

}  // namespace
}  // namespace moepack::replay_test
