// Batches of several threads at once over one store; run by the thread sanitizer too.
#include <gtest/gtest.h>
#include <atomic>
#include <latch>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "runtime/store/expert_store.h"
#include "tests/runtime/store/mixed_pack.h"

namespace moepack::expert_store_threads_test {
namespace {

using test::kMixedExperts;
using test::MixedPack;

constexpr std::uint32_t kThreads = 4;
constexpr std::uint32_t kBatches = 600;
constexpr std::uint32_t kLayers = 8;  // four times as many records as the cache holds
constexpr std::uint32_t kDamagedLayer = 1;
constexpr std::uint32_t kDamagedExpert = 3;

// Counts what went wrong; gtest's own expectations are for the main thread.
struct Tally {
  std::atomic<std::uint64_t> wrong_bytes{0};
  std::atomic<std::uint64_t> wrong_status{0};
  std::atomic<std::uint64_t> wrong_count{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> above_budget{0};
  std::atomic<std::uint64_t> given{0};
};

void check_ready(const MixedPack& pack, const ExpertStore::Batch& batch, std::uint32_t layer,
                 const std::vector<std::uint32_t>& experts, const ReadyExpert& ready,
                 Tally& tally) {
  ++tally.given;
  const std::uint32_t expert = experts[ready.index];
  const bool damaged = layer == kDamagedLayer && expert == kDamagedExpert;
  if (ready.status.is_ok() == damaged) ++tally.wrong_status;
  if (!damaged && !pack.holds(batch.handles()[ready.index], layer, expert)) ++tally.wrong_bytes;
}

void use_store(const MixedPack& pack, ExpertStore& store, std::uint64_t budget, std::uint32_t seed,
               Tally& tally) {
  std::mt19937 random(seed);
  for (std::uint32_t i = 0; i < kBatches; ++i) {
    const std::uint32_t layer = static_cast<std::uint32_t>(random() % kLayers);
    std::set<std::uint32_t> chosen;
    while (chosen.size() < store.max_batch(layer)) {
      chosen.insert(static_cast<std::uint32_t>(random() % kMixedExperts));
    }
    const std::vector<std::uint32_t> experts(chosen.begin(), chosen.end());
    Result<ExpertStore::Batch> begun = store.begin(layer, experts);
    if (!begun.is_ok()) {
      ++tally.refused;
      continue;
    }
    ExpertStore::Batch batch = std::move(begun).value();
    if (store.stats().allocated_bytes > budget) ++tally.above_budget;
    std::size_t count = 0;
    if (i % 3 == 0) continue;  // ends with its reads under way
    if (i % 3 == 1) {
      while (const std::optional<ReadyExpert> ready = batch.next_ready()) {
        check_ready(pack, batch, layer, experts, *ready, tally);
        ++count;
      }
    } else {
      for (auto ready = batch.take_ready(); !ready.empty(); ready = batch.take_ready()) {
        for (const ReadyExpert& one : ready) check_ready(pack, batch, layer, experts, one, tally);
        count += ready.size();
      }
    }
    if (count != experts.size()) ++tally.wrong_count;
  }
}

TEST(ExpertStoreThreads, BatchesOfSeveralThreadsShareTheCache) {
  const MixedPack pack(kLayers);
  pack.damage(kDamagedLayer, kDamagedExpert);
  const std::uint64_t budget = 2 * kThreads * pack.largest();
  ASSERT_OK_AND_ASSIGN(
      const auto store,
      ExpertStore::open(pack.dir.path(), pack.manifest,
                        {.cache_bytes = budget, .io_threads = 3, .concurrent_batches = kThreads}));
  ASSERT_EQ(store->max_batch(0), 2U);
  Tally tally;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      use_store(pack, *store, budget, t + 1, tally);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tally.wrong_bytes, 0U);
  EXPECT_EQ(tally.wrong_status, 0U);
  EXPECT_EQ(tally.wrong_count, 0U);
  EXPECT_EQ(tally.refused, 0U) << "the budget was made for this many batches";
  EXPECT_EQ(tally.above_budget, 0U);
  EXPECT_EQ(tally.given, kThreads * kBatches / 3 * 2 * 2);
  EXPECT_LE(store->stats().allocated_bytes, budget);
}

}  // namespace
}  // namespace moepack::expert_store_threads_test
