#include "runtime/model/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace moepack::thread_pool_test {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceInRangesOfAtMostTheGrain) {
  for (std::size_t threads : {1U, 2U, 3U, 8U}) {
    ThreadPool pool(threads);
    ASSERT_GE(pool.size(), 1U);
    ASSERT_LE(pool.size(), threads);
    for (std::size_t count : {0U, 1U, 2U, 7U, 64U, 1000U}) {
      for (std::size_t grain : {1U, 2U, 7U, 64U, 5000U}) {
        std::vector<std::atomic<int>> seen(count);
        pool.parallel_for(count, grain,
                          [&](std::size_t begin, std::size_t end, std::size_t worker) {
                            EXPECT_LT(begin, end);
                            EXPECT_LE(end - begin, grain);
                            EXPECT_LE(end, count);
                            EXPECT_LT(worker, pool.size());
                            for (std::size_t i = begin; i < end; ++i) ++seen[i];
                          });
        for (const auto& times : seen) ASSERT_EQ(times.load(), 1) << count << " by " << grain;
      }
    }
  }
}

// Scratch indexed by worker is used by one thread at a time: unsynchronised counters stay right
// (and the thread sanitizer stays silent), call after call.
TEST(ThreadPool, AWorkerNumberIsNeverUsedTwiceAtOnce) {
  ThreadPool pool(4);
  std::vector<std::size_t> sums(pool.size() * 64);  // a cache line each
  constexpr std::size_t kCalls = 3000;
  constexpr std::size_t kCount = 37;
  for (std::size_t call = 0; call < kCalls; ++call) {
    pool.parallel_for(kCount, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
      sums[worker * 64] += end - begin;
    });
  }
  std::size_t total = 0;
  for (std::size_t sum : sums) total += sum;
  EXPECT_EQ(total, kCalls * kCount);
}

// What the body wrote is visible to the caller, and no body runs after the call has returned, also
// when workers sleep between calls and wake late.
TEST(ThreadPool, ACallEndsOnlyWhenAllItsWorkHas) {
  ThreadPool pool(3);
  for (int call = 0; call < 200; ++call) {
    if (call % 20 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto values = std::make_unique<std::vector<int>>(16, 0);
    pool.parallel_for(16, 1, [&](std::size_t begin, std::size_t, std::size_t) {
      if (begin == 15) std::this_thread::sleep_for(std::chrono::microseconds(200));
      (*values)[begin] = call;
    });
    for (int value : *values) ASSERT_EQ(value, call);
  }
}

// Calls follow each other faster than threads find them, with jobs of other sizes and bodies that
// die with their call: a thread that comes late must not take part in a call that has ended, and
// what it takes of a later one it must do as that one asks.
TEST(ThreadPool, ALateThreadTakesNothingOfACallThatHasEnded) {
  ThreadPool pool(4);
  for (std::size_t call = 0; call < 20000; ++call) {
    const std::size_t count = 2 + call % 7;
    const std::size_t grain = 1 + call % 2;
    std::atomic<std::size_t> covered{0};
    const std::size_t weight = call;
    const std::size_t ranges = (count + grain - 1) / grain;
    pool.parallel_for(count, grain, [&](std::size_t begin, std::size_t end, std::size_t worker) {
      covered += (end - begin) * weight;
      EXPECT_LE(pool.share_end(worker), ranges);
    });
    ASSERT_EQ(covered.load(), count * weight) << call;
  }
}

// The caller waits in its sleep for a range that takes longer than it looks for the end, and
// workers in theirs for a call that comes late.
TEST(ThreadPool, WakesWhoSleeps) {
  ThreadPool pool(2);
  if (pool.size() < 2) GTEST_SKIP() << "SKIPPED: the system gives no second thread";
  for (int call = 0; call < 30; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> arrived{0};
    std::atomic<int> done{0};
    pool.parallel_for(2, 1, [&](std::size_t, std::size_t, std::size_t worker) {
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();
      if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++done;
    });
    ASSERT_EQ(done.load(), 2);
  }
}

TEST(ThreadPool, ManyMoreThreadsThanProcessorsStillFinish) {
  ThreadPool pool(4 * std::max(1U, std::thread::hardware_concurrency()));
  for (std::size_t call = 0; call < 300; ++call) {
    std::atomic<std::size_t> covered{0};
    pool.parallel_for(
        100, 1, [&](std::size_t begin, std::size_t end, std::size_t) { covered += end - begin; });
    ASSERT_EQ(covered.load(), 100U);
  }
}

TEST(ThreadPool, UsesItsThreads) {
  ThreadPool pool(2);
  if (pool.size() < 2) GTEST_SKIP() << "SKIPPED: the system gives no second thread";
  std::atomic<int> arrived{0};
  // Each of the two ranges waits for the other: one thread alone would never finish.
  pool.parallel_for(2, 1, [&](std::size_t, std::size_t, std::size_t) {
    ++arrived;
    while (arrived.load() < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 2);
}

// Where both threads are there from the beginning, each starts with its own share.
TEST(ThreadPool, EachThreadBeginsWithItsShare) {
  ThreadPool pool(2);
  if (pool.size() < 2) GTEST_SKIP() << "SKIPPED: the system gives no second thread";
  constexpr std::size_t kRanges = 9;
  constexpr std::size_t kNone = kRanges;
  for (int call = 0; call < 100; ++call) {
    std::vector<std::size_t> first(2, kNone);
    std::atomic<int> arrived{0};
    pool.parallel_for(kRanges, 1, [&](std::size_t begin, std::size_t, std::size_t worker) {
      EXPECT_EQ(pool.share_end(worker), pool.share_of(kRanges, worker).end);
      if (first[worker] != kNone) return;
      first[worker] = begin;
      ++arrived;
      while (arrived.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(first[0], 0U);
    EXPECT_EQ(first[1], pool.share_of(kRanges, 1).begin);
  }
}

// A thread that the system takes away keeps the others waiting for one range, not for its share.
TEST(ThreadPool, OthersTakeWhatAThreadLeavesOfItsShare) {
  for (const std::size_t threads : {2U, 4U}) {
    ThreadPool pool(threads);
    if (pool.size() < 2) GTEST_SKIP() << "SKIPPED: the system gives no second thread";
    constexpr std::size_t kRanges = 40;
    std::atomic<std::size_t> done{0};
    bool are_all_done = true;
    pool.parallel_for(kRanges, 1, [&](std::size_t begin, std::size_t, std::size_t) {
      if (begin == 0) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (done.load() + 1 < kRanges && std::chrono::steady_clock::now() < until) {
          std::this_thread::yield();
        }
        are_all_done = done.load() + 1 == kRanges;
      }
      ++done;
    });
    EXPECT_TRUE(are_all_done) << threads;
  }
}

TEST(ThreadPool, SharesAreConsecutiveAndAsEqualAsTheyCanBe) {
  ThreadPool pool(3);
  for (std::size_t ranges : {0U, 1U, 2U, 3U, 4U, 100U}) {
    std::size_t end = 0;
    for (std::size_t worker = 0; worker < pool.size(); ++worker) {
      const Part share = pool.share_of(ranges, worker);
      EXPECT_EQ(share.begin, end);
      EXPECT_GE(share.end - share.begin, ranges / pool.size());
      EXPECT_LE(share.end - share.begin, ranges / pool.size() + 1);
      end = share.end;
    }
    EXPECT_EQ(end, ranges);
  }
}

TEST(ThreadPool, NoThreadsAndNoGrainMeanOne) {
  ThreadPool pool(0);
  EXPECT_EQ(pool.size(), 1U);
  std::size_t covered = 0;
  pool.parallel_for(5, 0, [&](std::size_t begin, std::size_t end, std::size_t) {
    EXPECT_EQ(end - begin, 1U);
    covered += end - begin;
  });
  EXPECT_EQ(covered, 5U);
}

TEST(ThreadPool, EndsWithoutEverHavingWorked) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

}  // namespace
}  // namespace moepack::thread_pool_test
