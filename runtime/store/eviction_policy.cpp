#include "runtime/store/eviction_policy.h"

#include "runtime/store/score_order.h"

namespace moepack {
namespace {

// Its score is the number of the use, which a double counts exactly.
class LeastRecentlyUsed final : public EvictionPolicy {
 public:
  void used(RecordKey key) override {
    order_.raise(key, uses_ + 1);
    ++uses_;
  }
  void removed(RecordKey key) override { order_.remove(key); }
  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) override {
    return order_.least(may_leave);
  }

 private:
  double uses_ = 0;  // of all records
  ScoreOrder order_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> least_recently_used() {
  return std::make_unique<LeastRecentlyUsed>();
}

}  // namespace moepack
