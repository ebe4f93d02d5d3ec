// Records of a cache in the order of a score that only grows, as the policies of eviction need it:
// raised at every use, asked for its least when a record must leave.
//
// A use writes one number. The heap is put right when it is asked: an entry of it whose score has
// been raised since goes back with the new one, O(log n) for each use at most once; and each record
// that is asked for and must stay costs that again.
//
// Scores are kept by key: keys are small numbers (RecordKey). Not thread-safe.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/store/eviction_policy.h"

namespace moepack {

class ScoreOrder {
 public:
  // The last score of the record, also where it left; minus infinity where it never had one.
  double score(RecordKey key) const {
    if (key < records_.size()) return records_[key].score;
    return kNone;
  }
  // Puts the record into the order, or leaves it there, with a score that is at least what it had.
  // std::bad_alloc where memory is short: nothing has changed then.
  void raise(RecordKey key, double score);
  // Takes the record out of the order; nothing where it is not in it.
  void remove(RecordKey key);
  // The record in the order with the least score, of equal ones that with the least key, among
  // those for which `may_leave` is true; nullopt where it is true for none. It stays.
  std::optional<RecordKey> least(const std::function<bool(RecordKey)>& may_leave);

 private:
  static constexpr double kNone = -std::numeric_limits<double>::infinity();
  struct Record {
    double score = kNone;
    bool is_in_order = false;
    bool is_listed = false;  // has an entry of the heap, also some time after it left the order
  };
  struct Listed {
    double score = kNone;  // at most the record's
    RecordKey key = 0;
  };
  static bool comes_later(const Listed& a, const Listed& b);

  std::vector<Record> records_;  // by key
  std::vector<Listed> heap_;     // of std::push_heap by comes_later; an entry of each is_listed
};

}  // namespace moepack
