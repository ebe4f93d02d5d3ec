#include "runtime/store/record_cache.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "formats/base/bytes.h"

namespace moepack {

std::uint64_t record_memory_bytes(std::uint64_t record_bytes) {
  return align_up(record_bytes, kRecordAlignment);
}

std::size_t largest_batch(std::uint64_t budget, std::uint64_t kept, std::uint64_t batches,
                          std::uint64_t largest_record) {
  const std::uint64_t share =
      (budget - std::min(kept, budget)) / std::max<std::uint64_t>(1, batches);
  return std::max<std::uint64_t>(1, share / record_memory_bytes(largest_record));
}

RecordCache::RecordCache(std::uint64_t budget_bytes, std::unique_ptr<EvictionPolicy> policy)
    : budget_(budget_bytes), memory_(budget_bytes), policy_(std::move(policy)) {}

RecordCache::~RecordCache() {
  for (const Entry& entry : entries_) {
    if (!entry.memory.empty()) memory_.give_back(entry.memory);
  }
  for (auto& [size, spares] : spare_) {
    for (std::span<std::byte> spare : spares) memory_.give_back(spare);
  }
}

std::optional<RecordCache::Slot> RecordCache::pin(RecordKey key) {
  const Slot slot = slot_of(key);
  if (slot == kNoSlot) return std::nullopt;
  policy_->used(key);
  Entry& entry = entries_[slot];
  if (entry.pins++ == 0) pinned_ += entry.memory.size();
  return slot;
}

Result<RecordCache::Slot> RecordCache::add(RecordKey key, std::uint64_t bytes) {
  MOE_ASSIGN_OR_RETURN(const std::span<std::byte> memory, take_memory(record_memory_bytes(bytes)));
  Slot slot = 0;
  try {
    slot = note_key(key);
  } catch (const std::bad_alloc&) {
    keep_spare(memory);
    throw;
  }
  // From here on nothing needs memory.
  free_slots_.pop_back();
  pinned_ += memory.size();
  entries_[slot] = {.key = key, .memory = memory, .bytes = bytes, .pins = 1, .forgotten = false};
  return slot;
}

// Enters the key under the next free slot, which it leaves free.
RecordCache::Slot RecordCache::note_key(RecordKey key) {
  make_free_slot();
  if (key >= slots_.size()) slots_.resize(key + 1, kNoSlot);
  policy_->used(key);
  return slots_[key] = free_slots_.back();
}

void RecordCache::make_free_slot() {
  if (!free_slots_.empty()) return;
  const std::size_t count = entries_.size() + 1;
  if (free_slots_.capacity() < count) free_slots_.reserve(2 * count);
  entries_.emplace_back();
  free_slots_.push_back(count - 1);
}

void RecordCache::unpin(Slot slot) {
  Entry& entry = entries_[slot];
  if (--entry.pins > 0) return;
  pinned_ -= entry.memory.size();
  if (entry.forgotten) release(slot);
}

void RecordCache::forget(Slot slot) {
  Entry& entry = entries_[slot];
  if (entry.forgotten) return;
  entry.forgotten = true;
  slots_[entry.key] = kNoSlot;
  policy_->removed(entry.key);
}

std::span<std::byte> RecordCache::memory(Slot slot) {
  return entries_[slot].memory.first(entries_[slot].bytes);
}

// Exactly `size` bytes: spare ones or new ones, after evicting what the budget asks for.
Result<std::span<std::byte>> RecordCache::take_memory(std::uint64_t size) {
  if (pinned_ > budget_ || size > budget_ - pinned_) {
    return invalid_argument("the expert cache of " + std::to_string(budget_) +
                                " bytes cannot take a record of " + std::to_string(size) +
                                " bytes beside the " + std::to_string(pinned_) +
                                " bytes of records in use",
                            "raise --cache-mb");
  }
  while (true) {
    if (auto same = spare_.find(size); same != spare_.end() && !same->second.empty()) {
      const std::span<std::byte> memory = same->second.back();
      same->second.pop_back();
      return memory;
    }
    if (size <= budget_ - allocated_) {
      MOE_ASSIGN_OR_RETURN(const std::span<std::byte> memory, memory_.take(size));
      allocated_ += size;
      return memory;
    }
    // Spares of other sizes give their memory back before anything useful is evicted.
    if (!free_a_spare() && !evict_one()) {
      return invalid_argument("the eviction policy of the expert cache gives no record away");
    }
  }
}

bool RecordCache::free_a_spare() {
  for (auto& [size, spares] : spare_) {
    if (spares.empty()) continue;
    memory_.give_back(spares.back());
    spares.pop_back();
    allocated_ -= size;
    return true;
  }
  return false;
}

bool RecordCache::evict_one() {
  const auto may_leave = [this](RecordKey key) {
    const Slot slot = slot_of(key);
    return slot != kNoSlot && entries_[slot].pins == 0;
  };
  const std::optional<RecordKey> key = policy_->victim(may_leave);
  if (!key.has_value() || !may_leave(*key)) return false;
  const Slot slot = slot_of(*key);
  forget(slot);
  release(slot);
  return true;
}

// Ends an entry that is forgotten and has no pins.
void RecordCache::release(Slot slot) {
  const std::span<std::byte> memory = entries_[slot].memory;
  entries_[slot] = {};
  free_slots_.push_back(slot);
  keep_spare(memory);
}

// For the next entry of this size; given back to the system where there is no memory to note it.
void RecordCache::keep_spare(std::span<std::byte> memory) {
  try {
    spare_[memory.size()].push_back(memory);
  } catch (const std::bad_alloc&) {
    memory_.give_back(memory);
    allocated_ -= memory.size();
  }
}

}  // namespace moepack
