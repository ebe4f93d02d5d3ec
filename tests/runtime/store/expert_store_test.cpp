#include "runtime/store/expert_store.h"

#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "tests/runtime/store/mixed_pack.h"

namespace moepack::expert_store_test {
namespace {

using test::expect_batch;
using test::kMixedExperts;
using test::kMixedLayers;
using test::MixedPack;

std::vector<std::uint32_t> ids(std::initializer_list<std::uint32_t> list) { return list; }

TEST(ExpertStore, GivesTheRightBytesUnderConstantEviction) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store,
                       ExpertStore::open(pack.dir.path(), pack.manifest,
                                         {.cache_bytes = 3 * pack.largest(), .io_threads = 3}));
  EXPECT_EQ(store->max_batch(0), 3U);
  for (std::uint32_t round = 0; round < 200; ++round) {
    const std::uint32_t a = round * 7 % kMixedExperts;
    const std::uint32_t b = (a + 1 + round % 4) % kMixedExperts;
    std::vector<std::uint32_t> experts{a};
    if (b != a) experts.push_back(b);
    expect_batch(pack, *store, round % kMixedLayers, experts);
  }
  const ExpertStoreStats stats = store->stats();
  EXPECT_GT(stats.hits, 0U);
  EXPECT_GT(stats.misses, 50U);
  EXPECT_LE(stats.allocated_bytes, 3 * pack.largest());
}

TEST(ExpertStore, KeepsTheMostRecentlyUsed) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store,
                       ExpertStore::open(pack.dir.path(), pack.manifest,
                                         {.cache_bytes = 2 * pack.largest(), .io_threads = 1}));
  expect_batch(pack, *store, 0, {0});
  expect_batch(pack, *store, 0, {2});
  expect_batch(pack, *store, 0, {0});  // 2 is now the older one
  expect_batch(pack, *store, 0, {4});  // takes 2's place
  store->reset_stats();
  expect_batch(pack, *store, 0, {0});
  EXPECT_EQ(store->stats().hits, 1U);
  expect_batch(pack, *store, 0, {2});
  EXPECT_EQ(store->stats().misses, 1U);
  EXPECT_EQ(store->stats().bytes_read, pack.largest());
}

TEST(ExpertStore, TheSameExpertOfAnotherLayerIsAnother) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 100 * pack.largest()}));
  expect_batch(pack, *store, 0, {0, 1, 2, 3, 4, 5});
  expect_batch(pack, *store, 1, {0, 1, 2, 3, 4, 5});
  expect_batch(pack, *store, 0, {5, 3});
  EXPECT_EQ(store->stats().misses, 12U);
  EXPECT_EQ(store->stats().hits, 2U);
}

TEST(ExpertStore, DamageIsFoundAndNotKept) {
  const MixedPack pack;
  pack.damage(1, 3);
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 100 * pack.largest()}));
  for (int attempt = 0; attempt < 2; ++attempt) {
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store->begin(1, ids({2, 3})));
    test::expect_error(batch.wait(), StatusCode::kCorrupt, {"layer_01.bin", "expert 3", "offset"});
  }
  expect_batch(pack, *store, 1, {2});
}

TEST(ExpertStore, ShortFileIsAnError) {
  const MixedPack pack;
  std::filesystem::resize_file(pack.dir / layer_file_name(0),
                               pack.manifest.layers[0].file_size - 1);
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 100 * pack.largest()}));
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store->begin(0, ids({kMixedExperts - 1})));
  test::expect_error(batch.wait(), StatusCode::kCorrupt, {"layer_00.bin", "offset"});
}

TEST(ExpertStore, BudgetBelowOneRecordIsRefused) {
  const MixedPack pack;
  test::expect_error(
      ExpertStore::open(pack.dir.path(), pack.manifest, {.cache_bytes = pack.largest() - 1})
          .status(),
      StatusCode::kInvalidArgument, {"--cache-mb"});
  test::expect_error(
      ExpertStore::open(pack.dir.path(), pack.manifest,
                        {.cache_bytes = 3 * pack.largest() - 1, .concurrent_batches = 3})
          .status(),
      StatusCode::kInvalidArgument, {"3 batches", "--cache-mb"});
}

TEST(ExpertStore, AMissingLayerFileIsNamed) {
  const MixedPack pack;
  std::filesystem::remove(pack.dir / layer_file_name(1));
  test::expect_error(
      ExpertStore::open(pack.dir.path(), pack.manifest, {.cache_bytes = 100 * pack.largest()})
          .status(),
      StatusCode::kNotFound, {"layer_01.bin"});
}

TEST(ExpertStore, WhatIsReadAheadIsThereWhenItIsAskedFor) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store,
                       ExpertStore::open(pack.dir.path(), pack.manifest,
                                         {.cache_bytes = 64 * pack.largest(), .ahead_experts = 3}));
  {
    ASSERT_OK_AND_ASSIGN(const ExpertStore::Batch ahead, store->begin_ahead(1, ids({4, 0, 2, 5})));
    EXPECT_EQ(ahead.handles().size(), 3U);  // the first three
    expect_batch(pack, *store, 1, {0, 1});
  }
  EXPECT_EQ(store->stats().ahead_reads, 3U);
  EXPECT_EQ(store->stats().ahead_used, 1U);
  EXPECT_EQ(store->stats().hits, 1U);
  EXPECT_EQ(store->stats().misses, 1U);
  expect_batch(pack, *store, 1, {0, 4});
  EXPECT_EQ(store->stats().ahead_used, 2U);  // each counts once
}

// However much is asked for, the largest batch always finds room beside what two layers read ahead.
TEST(ExpertStore, WhatIsReadAheadLeavesRoomForTheLargestBatch) {
  const MixedPack pack;
  for (const std::uint64_t records : {1U, 2U, 16U, 40U}) {
    ASSERT_OK_AND_ASSIGN(
        const auto store,
        ExpertStore::open(pack.dir.path(), pack.manifest,
                          {.cache_bytes = records * pack.largest(), .ahead_experts = 100}));
    ASSERT_OK_AND_ASSIGN(const auto first, store->begin_ahead(0, ids({0, 1, 2, 3, 4, 5})));
    ASSERT_OK_AND_ASSIGN(const auto second, store->begin_ahead(1, ids({5, 4, 3, 2, 1, 0})));
    const std::vector<std::uint32_t> all{5, 4, 3, 2, 1, 0};
    expect_batch(
        pack, *store, 0,
        {all.begin(), all.begin() + std::min<std::ptrdiff_t>(
                                        6, static_cast<std::ptrdiff_t>(store->max_batch(0)))});
  }
}

TEST(ExpertStore, WhatThePackDoesNotHaveIsRefused) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 100 * pack.largest()}));
  test::expect_error(store->begin(0, ids({1, kMixedExperts})).status(),
                     StatusCode::kInvalidArgument, {"expert 6"});
  test::expect_error(store->begin(kMixedLayers, ids({1})).status(), StatusCode::kInvalidArgument,
                     {"layer 2"});
  expect_batch(pack, *store, 0, {1});
}

// Pins are counted: the first of two batches that share an expert ends, and the other one's record
// stays, although the room is wanted.
TEST(ExpertStore, ABatchKeepsWhatItSharesWithOneThatEnded) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 2 * pack.largest()}));
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch kept, store->begin(0, ids({0})));
  ASSERT_OK(kept.wait());
  expect_batch(pack, *store, 0, {0});  // begins and ends beside it
  for (const std::uint32_t expert : {2U, 4U, 2U, 4U}) expect_batch(pack, *store, 1, {expert});
  EXPECT_TRUE(pack.holds(kept.handles()[0], 0, 0));
  store->reset_stats();
  expect_batch(pack, *store, 0, {0});
  EXPECT_EQ(store->stats().hits, 1U) << "the shared record was evicted";
}

TEST(ExpertStore, AnExpertNamedTwiceIsReadOnceAndPinnedTwice) {
  const MixedPack pack;
  ASSERT_OK_AND_ASSIGN(const auto store, ExpertStore::open(pack.dir.path(), pack.manifest,
                                                           {.cache_bytes = 2 * pack.largest()}));
  for (int round = 0; round < 3; ++round) {
    // Room for two records: a second entry of expert 0 would leave none for expert 2.
    expect_batch(pack, *store, 0, {0, 2, 0});
    expect_batch(pack, *store, 1, {4, 4});
    expect_batch(pack, *store, 1, {2});
  }
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, store->begin(0, ids({0, 0})));
  std::vector<std::size_t> given;
  while (const std::optional<ReadyExpert> ready = batch.next_ready()) {
    ASSERT_OK(ready->status);
    given.push_back(ready->index);
  }
  EXPECT_EQ(given, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(batch.handles()[0].record, batch.handles()[1].record);
}

TEST(ExpertStore, NoRoomBesideALiveBatchIsAnErrorAndLeavesNoTrace) {
  const MixedPack pack;
  const std::uint64_t budget = 3 * pack.largest();
  ASSERT_OK_AND_ASSIGN(const auto store,
                       ExpertStore::open(pack.dir.path(), pack.manifest, {.cache_bytes = budget}));
  {
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch kept, store->begin(0, ids({0, 2})));
    for (int attempt = 0; attempt < 3; ++attempt) {
      // The first of the three has room, and gives it back.
      test::expect_error(store->begin(1, ids({0, 2, 4})).status(), StatusCode::kInvalidArgument,
                         {"records in use", "--cache-mb"});
      EXPECT_LE(store->stats().allocated_bytes, budget);
    }
    expect_batch(pack, *store, 1, {0});
    ASSERT_OK(kept.wait());
    EXPECT_TRUE(pack.holds(kept.handles()[0], 0, 0));
    EXPECT_TRUE(pack.holds(kept.handles()[1], 0, 2));
  }
  expect_batch(pack, *store, 1, {0, 2, 4});
}

TEST(ExpertStore, TheBudgetHoldsAsManyBatchesAsItWasToldOf) {
  const MixedPack pack;
  const std::uint64_t budget = 3 * pack.largest() + pack.largest() / 2;
  ASSERT_OK_AND_ASSIGN(const auto store,
                       ExpertStore::open(pack.dir.path(), pack.manifest,
                                         {.cache_bytes = budget, .concurrent_batches = 3}));
  ASSERT_EQ(store->max_batch(0), 1U);
  for (std::uint32_t round = 0; round < 20; ++round) {
    std::vector<ExpertStore::Batch> live;
    for (std::uint32_t i = 0; i < 3; ++i) {
      ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch,
                           store->begin(i % kMixedLayers, ids({(round + 2 * i) % kMixedExperts})));
      live.push_back(std::move(batch));
      EXPECT_LE(store->stats().allocated_bytes, budget);
    }
    for (std::uint32_t i = 0; i < 3; ++i) {
      ASSERT_OK(live[i].wait());
      EXPECT_TRUE(
          pack.holds(live[i].handles()[0], i % kMixedLayers, (round + 2 * i) % kMixedExperts));
    }
  }
}

}  // namespace
}  // namespace moepack::expert_store_test
