#include "convert/job/parallel.h"

#include <atomic>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace moepack::parallel_test {
namespace {

TEST(ParallelItems, EveryItemOnceAndWorkersWithinRange) {
  for (std::size_t threads : {1U, 2U, 7U, 64U}) {
    for (std::size_t count : {0U, 1U, 5U, 1000U}) {
      std::vector<std::atomic<int>> seen(count);
      std::atomic<bool> in_range{true};
      EXPECT_OK(parallel_items(count, threads, [&](std::size_t item, std::size_t worker) {
        ++seen[item];
        if (worker >= threads) in_range = false;
        return Status::ok();
      }));
      for (const auto& times : seen) EXPECT_EQ(times, 1);
      EXPECT_TRUE(in_range);
    }
  }
}

TEST(ParallelItems, TheFirstErrorWinsAndStopsTheRest) {
  std::atomic<std::size_t> started{0};
  const Status status = parallel_items(100000, 4, [&](std::size_t item, std::size_t) {
    ++started;
    return item >= 10 ? invalid_argument("item " + std::to_string(item)) : Status::ok();
  });
  test::expect_error(status, StatusCode::kInvalidArgument, {"item 10"});
  EXPECT_LT(started, 1000U);
}

TEST(ParallelItems, MemoryThatRunsOutIsAnError) {
  const auto work = [](std::size_t, std::size_t) -> Status { throw std::bad_alloc(); };
  test::expect_error(parallel_items(3, 2, work), StatusCode::kIo, {"out of memory"});
}

}  // namespace
}  // namespace moepack::parallel_test
