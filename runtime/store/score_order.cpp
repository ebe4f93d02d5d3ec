#include "runtime/store/score_order.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace moepack {

bool ScoreOrder::comes_later(const Listed& a, const Listed& b) {
  return std::tie(a.score, a.key) > std::tie(b.score, b.key);
}

void ScoreOrder::raise(RecordKey key, double score) {
  if (key >= records_.size()) records_.resize(key + 1);
  Record& record = records_[key];
  if (!record.is_listed) {
    heap_.push_back({score, key});
    std::push_heap(heap_.begin(), heap_.end(), comes_later);
  }
  record = {.score = score, .is_in_order = true, .is_listed = true};
}

void ScoreOrder::remove(RecordKey key) {
  if (key < records_.size()) records_[key].is_in_order = false;
}

std::optional<RecordKey> ScoreOrder::least(const std::function<bool(RecordKey)>& may_leave) {
  std::optional<RecordKey> found;
  // The heap's entries; behind them stand those that must stay, and at last the one that was found.
  std::size_t size = heap_.size();
  const auto at = [this](std::size_t i) { return heap_.begin() + static_cast<std::ptrdiff_t>(i); };
  while (size > 0 && !found.has_value()) {
    std::pop_heap(at(0), at(size), comes_later);
    Listed& first = heap_[size - 1];
    Record& record = records_[first.key];
    if (!record.is_in_order) {
      record.is_listed = false;
      first = heap_.back();
      heap_.pop_back();
      --size;
    } else if (first.score < record.score) {
      first.score = record.score;
      std::push_heap(at(0), at(size), comes_later);
    } else {
      if (may_leave(first.key)) found = first.key;
      --size;
    }
  }
  while (size < heap_.size()) std::push_heap(at(0), at(++size), comes_later);
  return found;
}

}  // namespace moepack
