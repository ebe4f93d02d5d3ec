// Which record leaves the cache when another one needs its memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace moepack {

// Names a record: its layer times the number of experts of a layer, plus its expert; so it is below
// the product of both numbers. What is kept of each stands at its place in an array.
using RecordKey = std::uint64_t;

// Sees every use of every record, so that it can count and keep lists of its own. A policy only
// proposes: the cache alone knows which records are pinned. Not thread-safe; RecordCache calls it.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // A batch asked for the record, which is in the cache or has just got its place there. May throw
  // std::bad_alloc, as no other function, and has then noted nothing.
  virtual void used(RecordKey key) = 0;
  // The record has left the cache. What the policy counted about it may stay.
  virtual void removed(RecordKey key) = 0;
  // The record to evict next, among those in the cache for which `may_leave` is true; nullopt when
  // it is true for none. The policy must not hold back a record when no other may leave.
  virtual std::optional<RecordKey> victim(const std::function<bool(RecordKey)>& may_leave) = 0;
};

// Evicts the record whose last use is the longest ago.
std::unique_ptr<EvictionPolicy> least_recently_used();

// Evicts the record that is used least often, where a use counts half as much after every
// `half_life` further uses of any record (> 0): the sum over its uses of 2^(-age / half_life). Uses
// before the record was evicted count on. That is the policy LRFU with lambda = 1 / half_life (Lee
// et al., IEEE Transactions on Computers 50(12), 2001): a half-life of 0 would be the least
// recently used, an infinite one the least frequently used. Ties: the lower key.
std::unique_ptr<EvictionPolicy> least_frequently_and_recently_used(double half_life);

// Evicts as `rest` does, and records of `kept` only when nothing else may leave; of those the one
// whose last use is the longest ago.
std::unique_ptr<EvictionPolicy> keep_records(std::unique_ptr<EvictionPolicy> rest,
                                             std::span<const RecordKey> kept);

}  // namespace moepack
