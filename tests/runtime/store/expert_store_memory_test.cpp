// Every allocation of the store fails once, and once with all that follow: an error, never a hang,
// and nothing stays pinned.
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/store/expert_store.h"
#include "tests/runtime/store/mixed_pack.h"
#include "tests/support/allocation_faults.h"

namespace moepack::expert_store_memory_test {
namespace {

using test::AllocationFault;
using test::expect_batch;
using test::MixedPack;

constexpr std::uint64_t kRecords = 3;            // room in the cache
constexpr std::size_t kFaults[] = {1, 1000000};  // allocations that fail, one behind the other

std::unique_ptr<ExpertStore> open_store(const MixedPack& pack) {
  auto store = ExpertStore::open(pack.dir.path(), pack.manifest,
                                 {.cache_bytes = kRecords * pack.largest(), .io_threads = 2});
  EXPECT_OK(store);
  return std::move(store).value();
}

// begin() with a fault; nullopt when it threw. `happened`: whether the fault did.
std::optional<Result<ExpertStore::Batch>> begin_with_fault(
    ExpertStore& store, const std::vector<std::uint32_t>& experts, std::size_t first,
    std::size_t count, bool& happened) {
  const AllocationFault fault(first, count);
  try {
    std::optional<Result<ExpertStore::Batch>> begun(store.begin(0, experts));
    happened = fault.happened();
    return begun;
  } catch (const std::bad_alloc&) {
    happened = true;
    return std::nullopt;
  }
}

// The last of `experts` come to a cache that is empty (0) or full of records to evict.
void drill_begin(const std::vector<std::uint32_t>& resident, std::size_t count) {
  const MixedPack pack;
  bool happened = true;
  std::size_t first = 0;
  while (happened) {
    ++first;
    ASSERT_LT(first, 1000U) << "begin() allocates without end";
    const auto store = open_store(pack);
    if (!resident.empty()) expect_batch(pack, *store, 1, resident);
    {
      const auto begun = begin_with_fault(*store, {0, 2, 4, 2}, first, count, happened);
      ASSERT_TRUE(begun.has_value()) << "begin() threw at allocation " << first;
      if (!begun->is_ok()) {
        test::expect_error(begun->status(), StatusCode::kIo, {"out of memory"});
      }
      if (!happened) {
        EXPECT_OK(*begun);
      }
    }
    // The whole budget is free, and the store knows nothing of experts that were not read.
    expect_batch(pack, *store, 0, {4, 2, 0});
    expect_batch(pack, *store, 1, {1, 3, 0});
    EXPECT_LE(store->stats().allocated_bytes, kRecords * pack.largest());
  }
  EXPECT_GT(first, 8U) << "the drill has missed the allocations";
}

TEST(ExpertStoreMemory, BeginLeavesNothingPinned) {
  for (const std::size_t count : kFaults) drill_begin({}, count);
}

TEST(ExpertStoreMemory, BeginThatEvictsLeavesNothingPinned) {
  for (const std::size_t count : kFaults) {
    drill_begin({0, 2, 4}, count);
    drill_begin({1, 3, 5}, count);  // of another size
  }
}

// A batch whose wait finds no memory has given nothing and goes on when there is some again.
TEST(ExpertStoreMemory, WaitingWithoutMemoryLosesNoExpert) {
  const MixedPack pack;
  pack.damage(0, 2);
  for (const std::size_t count : kFaults) {
    bool happened = true;
    for (std::size_t first = 1; happened; ++first) {
      ASSERT_LT(first, 1000U);
      const auto store = open_store(pack);
      ASSERT_OK_AND_ASSIGN(ExpertStore::Batch batch,
                           store->begin(0, std::vector<std::uint32_t>{0, 2, 4}));
      std::vector<ReadyExpert> given;
      {
        const AllocationFault fault(first, count);
        try {
          (void)batch.wait();
        } catch (const std::bad_alloc&) {
        }
        try {
          given = batch.take_ready();
        } catch (const std::bad_alloc&) {
        }
        happened = fault.happened();
      }
      for (auto more = batch.take_ready(); !more.empty(); more = batch.take_ready()) {
        given.insert(given.end(), more.begin(), more.end());
      }
      ASSERT_EQ(given.size(), 3U) << first;
      for (const ReadyExpert& expert : given) {
        EXPECT_EQ(expert.status.is_ok(), expert.index != 1) << expert.status.message();
      }
    }
  }
}

TEST(ExpertStoreMemory, ABatchEndsWithoutMemory) {
  const MixedPack pack;
  pack.damage(0, 2);
  const auto store = open_store(pack);
  std::optional<ExpertStore::Batch> batch;
  {
    auto begun = store->begin(0, std::vector<std::uint32_t>{0, 2, 4});
    ASSERT_OK(begun);
    batch.emplace(std::move(begun).value());
  }
  {
    const AllocationFault fault(1, 1000000);
    batch.reset();
  }
  expect_batch(pack, *store, 1, {0, 2, 4});
}

}  // namespace
}  // namespace moepack::expert_store_memory_test
