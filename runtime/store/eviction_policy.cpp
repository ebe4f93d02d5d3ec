#include "runtime/store/eviction_policy.h"

#include <list>
#include <unordered_map>

namespace moepack {
namespace {

class LeastRecentlyUsed final : public EvictionPolicy {
 public:
  void used(RecordKey key) override {
    const auto found = place_.find(key);
    if (found != place_.end()) {
      recency_.splice(recency_.begin(), recency_, found->second);
      return;
    }
    std::list<RecordKey> node{key};
    place_.emplace(key, node.begin());
    recency_.splice(recency_.begin(), node);
  }

  void removed(RecordKey key) override {
    const auto found = place_.find(key);
    if (found == place_.end()) return;
    recency_.erase(found->second);
    place_.erase(found);
  }

  std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) const override {
    for (auto it = recency_.rbegin(); it != recency_.rend(); ++it) {
      if (may_leave(*it)) return *it;
    }
    return std::nullopt;
  }

 private:
  std::list<RecordKey> recency_;  // front: most recently used
  std::unordered_map<RecordKey, std::list<RecordKey>::iterator> place_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> least_recently_used() {
  return std::make_unique<LeastRecentlyUsed>();
}

}  // namespace moepack
