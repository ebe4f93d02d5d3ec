// Which record leaves the cache when another one needs its memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

namespace moepack {

// Names a record: its layer times the number of experts of a layer, plus its expert.
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
  virtual std::optional<RecordKey> victim(
      const std::function<bool(RecordKey)>& may_leave) const = 0;
};

// Evicts the record whose last use is the longest ago.
std::unique_ptr<EvictionPolicy> least_recently_used();

}  // namespace moepack
