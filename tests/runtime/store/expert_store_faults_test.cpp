// What the store makes of late, disordered and failed reads, with a reader that makes them.
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/store/expert_store.h"
#include "tests/runtime/store/faulty_reader.h"
#include "tests/runtime/store/mixed_pack.h"

namespace moepack::expert_store_faults_test {
namespace {

using test::expect_batch;
using test::FaultyReader;
using test::MixedPack;
using test::ReadFault;
using test::ReapOrder;

class StoreFaults : public ::testing::Test {
 protected:
  void open(ReapOrder order, std::uint64_t records = 100) {
    auto reader = std::make_unique<FaultyReader>(pack_.files(), order);
    reader_ = reader.get();
    ASSERT_OK_AND_ASSIGN(
        store_, ExpertStore::open_with(std::move(reader), least_recently_used(), pack_.dir.path(),
                                       pack_.manifest, {.cache_bytes = records * pack_.largest()}));
  }

  void set_fault(std::uint32_t layer, std::uint32_t expert, ReadFault fault) {
    reader_->faults[{layer, pack_.manifest.layers[layer].experts[expert].offset}] = fault;
  }

  Result<ExpertStore::Batch> begin(std::uint32_t layer, std::vector<std::uint32_t> experts) {
    return store_->begin(layer, experts);
  }

  MixedPack pack_;
  std::unique_ptr<ExpertStore> store_;
  FaultyReader* reader_ = nullptr;  // owned by the store
};

std::vector<std::size_t> indices(const std::vector<ReadyExpert>& ready) {
  std::vector<std::size_t> all;
  for (const ReadyExpert& expert : ready) all.push_back(expert.index);
  return all;
}

TEST_F(StoreFaults, ResidentsComeFirstThenTheOthersAsTheyArrive) {
  open(ReapOrder::kLastFirst);
  expect_batch(pack_, *store_, 0, {4, 1});
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, begin(0, {0, 1, 2, 4, 5}));
  std::vector<ReadyExpert> given;
  while (const std::optional<ReadyExpert> ready = batch.next_ready()) {
    ASSERT_OK(ready->status);
    given.push_back(*ready);
    // Readable as soon as it is given.
    const std::uint32_t expert = std::vector<std::uint32_t>{0, 1, 2, 4, 5}[ready->index];
    EXPECT_TRUE(pack_.holds(batch.handles()[ready->index], 0, expert));
  }
  EXPECT_EQ(indices(given), (std::vector<std::size_t>{1, 3, 4, 2, 0}));
  EXPECT_FALSE(batch.next_ready().has_value());
}

TEST_F(StoreFaults, AllThatAreReadyAreTakenTogether) {
  open(ReapOrder::kAsSubmitted);
  reader_->per_reap = 2;
  expect_batch(pack_, *store_, 0, {3});
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, begin(0, {0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(indices(batch.take_ready()), (std::vector<std::size_t>{3}));
  EXPECT_EQ(indices(batch.take_ready()), (std::vector<std::size_t>{0, 1}));
  const std::optional<ReadyExpert> one = batch.next_ready();
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->index, 2U);
  const std::vector<std::size_t> rest = indices(batch.take_ready());
  ASSERT_FALSE(rest.empty());
  EXPECT_EQ(rest[0], 4U);
  std::size_t count = rest.size();
  for (auto more = batch.take_ready(); !more.empty(); more = batch.take_ready()) {
    count += more.size();
  }
  EXPECT_EQ(count, 2U) << "every expert is given once";
}

TEST_F(StoreFaults, WhatABatchMissesIsOneSubmission) {
  open(ReapOrder::kShuffled);
  expect_batch(pack_, *store_, 0, {1, 2});
  expect_batch(pack_, *store_, 0, {0, 1, 2, 3, 4, 5});
  expect_batch(pack_, *store_, 0, {0, 5});
  EXPECT_EQ(reader_->submissions, (std::vector<std::size_t>{2, 4}));
}

TEST_F(StoreFaults, AFailedReadIsTheErrorOfItsOwnExpert) {
  open(ReapOrder::kShuffled);
  set_fault(1, 0, ReadFault::kError);
  set_fault(1, 2, ReadFault::kShort);
  set_fault(1, 5, ReadFault::kDamage);
  {
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, begin(1, {5, 4, 3, 2, 1, 0}));
    std::vector<Status> status(6);
    while (const std::optional<ReadyExpert> ready = batch.next_ready()) {
      status[5 - ready->index] = ready->status;
    }
    test::expect_error(status[0], StatusCode::kIo, {"layer_01.bin", "offset", "EIO"});
    test::expect_error(status[2], StatusCode::kCorrupt,
                       {"layer_01.bin", "offset", "expert 2", "bytes"});
    test::expect_error(status[5], StatusCode::kCorrupt,
                       {"layer_01.bin", "offset", "expert 5", "checksum"});
    for (const std::uint32_t good : {1U, 3U, 4U}) {
      EXPECT_OK(status[good]);
      EXPECT_TRUE(pack_.holds(batch.handles()[5 - good], 1, good));
    }
    // The first in the order of the batch, whatever came first.
    test::expect_error(batch.wait(), StatusCode::kCorrupt, {"expert 5"});
  }
  reader_->faults.clear();
  store_->reset_stats();
  expect_batch(pack_, *store_, 1, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(store_->stats().misses, 3U) << "what failed is read again, and only that";
}

TEST_F(StoreFaults, ARecordIsComparedAtItsFirstReadOnly) {
  open(ReapOrder::kAsSubmitted, 1);
  expect_batch(pack_, *store_, 0, {2});
  expect_batch(pack_, *store_, 0, {0});  // evicts it
  set_fault(0, 2, ReadFault::kDamage);
  set_fault(0, 4, ReadFault::kDamage);
  {
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, begin(0, {2}));
    EXPECT_OK(batch.wait());
  }
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, begin(0, {4}));
  test::expect_error(batch.wait(), StatusCode::kCorrupt, {"expert 4"});
}

// The store takes the reader's word: no thread that waits for an expert hashes its bytes.
TEST_F(StoreFaults, ChecksumsAreTheReadersWork) {
  open(ReapOrder::kAsSubmitted);
  set_fault(0, 2, ReadFault::kLate);
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch, begin(0, {2, 3}));
  EXPECT_OK(batch.wait());
  EXPECT_FALSE(pack_.holds(batch.handles()[0], 0, 2));
}

TEST_F(StoreFaults, ARecordOnItsWayIsReadOnceForTwoBatches) {
  open(ReapOrder::kLastFirst);
  ASSERT_OK_AND_ASSIGN(ExpertStore::Batch second, begin(0, {}));
  {
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch first, begin(0, {0, 1}));
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch late, begin(0, {1, 2}));
    EXPECT_EQ(reader_->submissions, (std::vector<std::size_t>{2, 1}));
    EXPECT_FALSE(late.handles()[0].was_resident);
    EXPECT_EQ(indices(first.take_ready()), (std::vector<std::size_t>{1}));
    // Read while the other batch waited.
    EXPECT_EQ(indices(late.take_ready()), (std::vector<std::size_t>{1, 0}));
    EXPECT_TRUE(pack_.holds(late.handles()[0], 0, 1));
    EXPECT_TRUE(pack_.holds(late.handles()[1], 0, 2));
  }
  EXPECT_TRUE(second.take_ready().empty());
  EXPECT_FALSE(second.next_ready().has_value());
  EXPECT_OK(second.wait());
}

TEST_F(StoreFaults, BothBatchesLearnOfTheFailure) {
  open(ReapOrder::kAsSubmitted, 2);
  set_fault(0, 0, ReadFault::kError);
  {
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch first, begin(0, {0}));
    ASSERT_OK_AND_ASSIGN(ExpertStore::Batch second, begin(0, {0}));
    test::expect_error(first.wait(), StatusCode::kIo, {"EIO"});
    reader_->faults.clear();
    // Another try while the failed record is still pinned.
    expect_batch(pack_, *store_, 0, {0});
    test::expect_error(second.wait(), StatusCode::kIo, {"EIO"});
  }
  expect_batch(pack_, *store_, 0, {0, 2});  // all of the budget is free again
}

TEST_F(StoreFaults, ABatchThatEndsBeforeItsReadsWaitsForThem) {
  open(ReapOrder::kShuffled, 3);
  for (std::uint32_t round = 0; round < 6; ++round) {
    { ASSERT_OK_AND_ASSIGN(ExpertStore::Batch dropped, begin(0, {0, 2, 4})); }
    EXPECT_EQ(reader_->under_way(), 0U);
    expect_batch(pack_, *store_, 1, {round % 6, (round + 1) % 6});
  }
}

TEST_F(StoreFaults, AnErrorOfTheSubmissionIsBeginsAndLeavesNoTrace) {
  open(ReapOrder::kAsSubmitted, 3);
  expect_batch(pack_, *store_, 0, {0});
  reader_->next_submit = make_error(StatusCode::kIo, Where{}, "the ring is full");
  test::expect_error(begin(0, {0, 2, 4, 2}).status(), StatusCode::kIo, {"the ring is full"});
  store_->reset_stats();
  expect_batch(pack_, *store_, 0, {0, 2, 4});
  EXPECT_EQ(store_->stats().hits, 1U);
  EXPECT_EQ(store_->stats().misses, 2U);
}

TEST_F(StoreFaults, ReadSecondsArePartOfTheTimeThatPassed) {
  open(ReapOrder::kShuffled);
  const Clock::time_point start = Clock::now();
  expect_batch(pack_, *store_, 0, {0, 1, 2});
  expect_batch(pack_, *store_, 1, {0, 1, 2});
  const double seconds = store_->stats().read_seconds;
  EXPECT_GE(seconds, 0.0);
  EXPECT_LE(seconds, seconds_since(start));
}

}  // namespace
}  // namespace moepack::expert_store_faults_test
