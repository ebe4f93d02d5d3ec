#include <algorithm>
#include <cmath>

#include "runtime/store/eviction_policy.h"
#include "runtime/store/score_order.h"

namespace moepack {
namespace {

// The sum of 2^(-age / half_life) over a record's uses shrinks for all records alike as time goes
// on, so their order changes with uses alone. What is kept is the logarithm of the sum of
// 2^(time / half_life), which has the same order and only grows.
class FrequencyAndRecency final : public EvictionPolicy {
 public:
  explicit FrequencyAndRecency(double half_life) : half_life_(half_life) {}

  void used(RecordKey key) override {
    const double now = static_cast<double>(uses_ + 1) / half_life_;
    order_.raise(key, sum_of(order_.score(key), now));
    ++uses_;
  }
  void removed(RecordKey key) override { order_.remove(key); }
  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) override {
    return order_.least(may_leave);
  }

 private:
  // log2(2^a + 2^b), of which one may be zero.
  static double sum_of(double a, double b) {
    const auto [low, high] = std::minmax(a, b);
    return high + std::log2(1.0 + std::exp2(low - high));
  }

  double half_life_;
  std::uint64_t uses_ = 0;  // of all records
  ScoreOrder order_;        // also the scores of every record that was ever used
};

}  // namespace

std::unique_ptr<EvictionPolicy> least_frequently_and_recently_used(double half_life) {
  return std::make_unique<FrequencyAndRecency>(half_life);
}

}  // namespace moepack
