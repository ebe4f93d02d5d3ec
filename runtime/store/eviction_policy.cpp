#include "runtime/store/eviction_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/store/score_order.h"

namespace moepack {
namespace {

// Evicts the record with the least score. A use's score is `score_of` the record's last one, minus
// infinity at first, and the number of the use, which a double counts exactly; it is at least the
// last one.
template <typename ScoreOf>
class LeastScore final : public EvictionPolicy {
 public:
  explicit LeastScore(ScoreOf score_of) : score_of_(std::move(score_of)) {}

  void used(RecordKey key) override {
    order_.raise(key, score_of_(order_.score(key), uses_ + 1));
    ++uses_;
  }
  void removed(RecordKey key) override { order_.remove(key); }
  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) override {
    return order_.least(may_leave);
  }

 private:
  ScoreOf score_of_;
  double uses_ = 0;   // of all records
  ScoreOrder order_;  // also the scores of every record that was ever used
};

template <typename ScoreOf>
std::unique_ptr<EvictionPolicy> least_score(ScoreOf score_of) {
  return std::make_unique<LeastScore<ScoreOf>>(std::move(score_of));
}

// log2(2^a + 2^b), of which one may be zero.
double log_sum(double a, double b) {
  const auto [low, high] = std::minmax(a, b);
  return high + std::log2(1.0 + std::exp2(low - high));
}

}  // namespace

std::unique_ptr<EvictionPolicy> least_recently_used() {
  return least_score([](double /*last*/, double use) { return use; });
}

// The sum of 2^(-age / half_life) over a record's uses shrinks for all records alike as time goes
// on, so their order changes with uses alone. What is kept is the logarithm of the sum of
// 2^(time / half_life), which has the same order and only grows.
std::unique_ptr<EvictionPolicy> least_frequently_and_recently_used(double half_life) {
  return least_score(
      [half_life](double last, double use) { return log_sum(last, use / half_life); });
}

}  // namespace moepack
