#include "runtime/store/eviction_policy.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "runtime/store/cache_policy.h"
#include "tests/support/status_matchers.h"

namespace moepack::eviction_policy_test {
namespace {

const auto kAnyMayLeave = [](RecordKey) { return true; };

// Every use of every record with its time, and the sum of the definition over them.
class BruteForce {
 public:
  explicit BruteForce(double half_life) : half_life_(half_life) {}

  void used(RecordKey key) { uses_[key].push_back(++time_); }
  double score(RecordKey key) const {
    double sum = 0;
    for (const double at : uses_.at(key)) sum += std::exp2((at - time_) / half_life_);
    return sum;
  }

 private:
  double half_life_;
  double time_ = 0;
  std::map<RecordKey, std::vector<double>> uses_;
};

class LfruTest : public ::testing::TestWithParam<double> {};

// Uses, evictions and records that must stay at random, against the definition.
TEST_P(LfruTest, ProposesTheLeastSumOfDecayedUses) {
  std::mt19937 random(7);
  const auto policy = least_frequently_and_recently_used(GetParam());
  BruteForce twin(GetParam());
  std::set<RecordKey> cached;
  std::size_t proposals = 0;
  for (int step = 0; step < 6000; ++step) {
    // Low keys are used more often than high ones.
    const RecordKey key = std::min(random() % 24, random() % 24);
    policy->used(key);
    twin.used(key);
    cached.insert(key);
    if (cached.size() <= 10) continue;
    std::set<RecordKey> stay;
    for (std::size_t i = random() % 6; i > 0; --i) stay.insert(random() % 24);
    const auto may_leave = [&](RecordKey k) { return !stay.contains(k); };
    const std::optional<RecordKey> victim = policy->victim(may_leave);
    double least = INFINITY;
    for (const RecordKey k : cached) {
      if (may_leave(k)) least = std::min(least, twin.score(k));
    }
    ASSERT_EQ(victim.has_value(), !std::isinf(least));
    if (!victim.has_value()) continue;
    ASSERT_TRUE(cached.contains(*victim) && may_leave(*victim));
    ASSERT_LE(twin.score(*victim), least * (1 + 1e-9)) << "step " << step;
    policy->removed(*victim);
    cached.erase(*victim);
    ++proposals;
  }
  EXPECT_GT(proposals, 1000U);
}

INSTANTIATE_TEST_SUITE_P(HalfLives, LfruTest, ::testing::Values(0.5, 3.0, 40.0, 5000.0));

TEST(EvictionPolicy, LfruWithAShortMemoryIsLru) {
  std::mt19937 random(3);
  const auto lru = least_recently_used();
  const auto lfru = least_frequently_and_recently_used(0.01);
  for (int step = 0; step < 500; ++step) {
    const RecordKey key = random() % 20;
    lru->used(key);
    lfru->used(key);
    ASSERT_EQ(lru->victim(kAnyMayLeave), lfru->victim(kAnyMayLeave));
  }
}

TEST(EvictionPolicy, LfruRemembersUsesBeforeAnEviction) {
  const auto policy = least_frequently_and_recently_used(1000);
  for (int i = 0; i < 5; ++i) policy->used(1);
  policy->removed(1);
  policy->used(2);
  policy->used(3);
  policy->used(1);
  policy->used(2);
  EXPECT_EQ(policy->victim(kAnyMayLeave), 3U);
  policy->removed(3);
  EXPECT_EQ(policy->victim(kAnyMayLeave), 2U) << "1 was used six times in all";
  policy->removed(9);  // never seen
  EXPECT_EQ(policy->victim([](RecordKey) { return false; }), std::nullopt);
}

// Time has no end: after many uses the decayed sums still differ.
TEST(EvictionPolicy, LfruOrdersAfterBillionsOfHalfLives) {
  const auto policy = least_frequently_and_recently_used(1e-7);
  for (int i = 0; i < 1000; ++i) {
    policy->used(1);
    policy->used(2);
    ASSERT_EQ(policy->victim(kAnyMayLeave), 1U);
  }
}

TEST(EvictionPolicy, KeptRecordsLeaveLast) {
  const std::vector<RecordKey> kept{4, 2};
  const auto policy = keep_records(least_recently_used(), kept);
  for (const RecordKey key : {2U, 7U, 4U, 8U}) policy->used(key);
  EXPECT_EQ(policy->victim(kAnyMayLeave), 7U);
  EXPECT_EQ(policy->victim([](RecordKey k) { return k != 7; }), 8U);
  policy->removed(7);
  policy->removed(8);
  EXPECT_EQ(policy->victim(kAnyMayLeave), 2U) << "no other may leave, and it was used before 4";
  policy->used(2);
  EXPECT_EQ(policy->victim(kAnyMayLeave), 4U);
  policy->removed(4);
  policy->removed(2);
  EXPECT_EQ(policy->victim(kAnyMayLeave), std::nullopt);
}

TEST(EvictionPolicy, NamesOfPolicies) {
  for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kLfru}) {
    ASSERT_OK_AND_ASSIGN(const CachePolicy back, parse_cache_policy(cache_policy_name(policy)));
    EXPECT_EQ(back, policy);
  }
  test::expect_error(parse_cache_policy("fifo").status(), StatusCode::kInvalidArgument,
                     {"fifo", "lru and lfru"});
}

}  // namespace
}  // namespace moepack::eviction_policy_test
