#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>

#include "runtime/store/eviction_policy.h"

namespace moepack {
namespace {

// The sum of 2^(-age / half_life) over a record's uses shrinks for all records alike as time goes
// on, so their order changes with uses alone. What is kept is the logarithm of the sum of
// 2^(time / half_life), which has the same order and needs no upkeep.
class FrequencyAndRecency final : public EvictionPolicy {
 public:
  explicit FrequencyAndRecency(double half_life) : half_life_(half_life) {}

  void used(RecordKey key) override {
    const double now = static_cast<double>(uses_ + 1) / half_life_;
    const auto found = records_.find(key);
    if (found == records_.end()) {
      Order::node_type node = node_of({now, key});
      records_.emplace(key, Record{.score = now, .is_cached = true});
      order_.insert(std::move(node));
    } else {
      Record& record = found->second;
      // The only allocation, before anything is noted.
      Order::node_type node =
          record.is_cached ? order_.extract({record.score, key}) : node_of({record.score, key});
      record.score = sum_of(record.score, now);
      record.is_cached = true;
      node.value().first = record.score;
      order_.insert(std::move(node));
    }
    ++uses_;
  }

  void removed(RecordKey key) override {
    const auto found = records_.find(key);
    if (found == records_.end() || !found->second.is_cached) return;
    found->second.is_cached = false;
    order_.erase({found->second.score, key});
  }

  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) const override {
    for (const auto& [score, key] : order_) {
      if (may_leave(key)) return key;
    }
    return std::nullopt;
  }

 private:
  using Order = std::set<std::pair<double, RecordKey>>;  // of cached records
  struct Record {
    double score = 0;  // log2 of its sum
    bool is_cached = false;
  };

  static Order::node_type node_of(const Order::value_type& value) {
    Order one{value};
    return one.extract(one.begin());
  }

  // log2(2^a + 2^b).
  static double sum_of(double a, double b) {
    const auto [low, high] = std::minmax(a, b);
    return high + std::log2(1.0 + std::exp2(low - high));
  }

  double half_life_;
  std::uint64_t uses_ = 0;  // of all records
  Order order_;
  std::unordered_map<RecordKey, Record> records_;  // every record that was ever used
};

}  // namespace

std::unique_ptr<EvictionPolicy> least_frequently_and_recently_used(double half_life) {
  return std::make_unique<FrequencyAndRecency>(half_life);
}

}  // namespace moepack
