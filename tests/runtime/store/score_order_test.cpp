// The order of records by a score that only grows, against a map.
#include "runtime/store/score_order.h"

#include <gtest/gtest.h>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>

namespace moepack::score_order_test {
namespace {

const auto kAnyMayLeave = [](RecordKey) { return true; };

// The record with the least (score, key) among those that may leave.
std::optional<RecordKey> least_of(const std::map<RecordKey, double>& scores,
                                  const std::function<bool(RecordKey)>& may_leave) {
  std::optional<RecordKey> least;
  for (const auto& [key, score] : scores) {
    if (may_leave(key) && (!least.has_value() || score < scores.at(*least))) least = key;
  }
  return least;
}

// Scores grow by whole numbers, so that many are equal; who left comes back.
TEST(ScoreOrder, GivesWhatAMapGives) {
  std::mt19937 random(11);
  ScoreOrder order;
  std::map<RecordKey, double> in_order;
  std::map<RecordKey, double> ever;
  for (int step = 0; step < 20000; ++step) {
    const RecordKey key = random() % 40;
    if (random() % 3 == 0) {
      order.remove(key);
      in_order.erase(key);
    } else {
      const double score =
          (ever.contains(key) ? ever[key] : 0.0) + static_cast<double>(random() % 3);
      order.raise(key, score);
      in_order[key] = ever[key] = score;
    }
    ASSERT_EQ(order.score(key), ever.contains(key) ? ever[key] : -INFINITY);
    if (random() % 4 != 0) continue;
    const RecordKey stays = random() % 5 + 2;
    const auto may_leave = [&](RecordKey k) { return k % stays != 0; };
    ASSERT_EQ(order.least(may_leave), least_of(in_order, may_leave)) << "step " << step;
    ASSERT_EQ(order.least(kAnyMayLeave), least_of(in_order, kAnyMayLeave)) << "step " << step;
  }
}

TEST(ScoreOrder, NothingIsInItAtFirst) {
  ScoreOrder order;
  order.remove(3);
  EXPECT_EQ(order.least(kAnyMayLeave), std::nullopt);
  EXPECT_EQ(order.score(3), -INFINITY);
  order.raise(3, 1);
  EXPECT_EQ(order.least([](RecordKey) { return false; }), std::nullopt);
  EXPECT_EQ(order.least(kAnyMayLeave), 3U);
  EXPECT_EQ(order.least(kAnyMayLeave), 3U) << "it stays";
}

}  // namespace
}  // namespace moepack::score_order_test
