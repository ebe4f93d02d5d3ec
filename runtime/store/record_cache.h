// Records in memory within a budget of bytes. The cache does no I/O and does not know what stands
// in a record: it gives memory under a key, keeps it while it is pinned, and evicts what is not
// pinned when the budget is used up.
//
// Thread rule: no lock of its own. Every call needs the lock of the owner (ExpertStore's mutex);
// the bytes of a pinned record may be read and written without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "runtime/store/eviction_policy.h"
#include "runtime/store/record_memory.h"

namespace moepack {

// Records start at multiples of this, and their memory is a multiple of it long.
constexpr std::size_t kRecordAlignment = kDirectUnit;

// What a record of this many bytes takes of the budget.
std::uint64_t record_memory_bytes(std::uint64_t record_bytes);

// How many records of at most `largest_record` bytes a batch may pin (>= 1), where `batches`
// batches at a time share what `budget` leaves beside `kept` bytes of records that are to stay.
std::size_t largest_batch(std::uint64_t budget, std::uint64_t kept, std::uint64_t batches,
                          std::uint64_t largest_record);

class RecordCache {
 public:
  // Names an entry while it is pinned. Slots are small numbers and are used again.
  using Slot = std::size_t;
  static constexpr Slot kNoSlot = std::numeric_limits<Slot>::max();

  RecordCache(std::uint64_t budget_bytes, std::unique_ptr<EvictionPolicy> policy);
  ~RecordCache();
  RecordCache(const RecordCache&) = delete;
  RecordCache& operator=(const RecordCache&) = delete;

  // Counts one pin more on the record of `key`; nullopt when there is none. std::bad_alloc where
  // the policy throws it; no pin has changed then.
  std::optional<Slot> pin(RecordKey key);
  // Whether pin() would find it. Not a use.
  bool holds(RecordKey key) const { return slot_of(key) != kNoSlot; }
  // Makes an entry with uninitialized memory for `bytes` bytes, pinned once, and evicts records for
  // it where the budget asks for that. There must be none of this key. An error leaves the cache
  // without the entry: kInvalidArgument when pinned records leave no room, kIo when the system
  // gives no memory for the record, std::bad_alloc when it gives none for the lists.
  Result<Slot> add(RecordKey key, std::uint64_t bytes);
  // Counts one pin less. An entry without pins may be evicted; one that was forgotten ends.
  void unpin(Slot slot);
  // The key finds this entry no more; its memory stays as long as it is pinned. For a pinned entry
  // whose bytes turned out to be wrong.
  void forget(Slot slot);

  // The bytes of a pinned entry. They stay where they are until the last pin goes. Behind the end
  // the memory goes on to the next multiple of kRecordAlignment.
  std::span<std::byte> memory(Slot slot);

  // Every slot is below this, and that of the next add() at most this.
  std::size_t slots() const { return entries_.size(); }

  std::uint64_t budget_bytes() const { return budget_; }
  // All memory the cache holds, evicted records' that waits for its next use included.
  std::uint64_t allocated_bytes() const { return allocated_; }
  // What can not be evicted now.
  std::uint64_t pinned_bytes() const { return pinned_; }

 private:
  struct Entry {
    RecordKey key = 0;
    std::span<std::byte> memory;  // record_memory_bytes(bytes)
    std::uint64_t bytes = 0;
    std::size_t pins = 0;
    bool forgotten = false;
  };

  Slot slot_of(RecordKey key) const { return key < slots_.size() ? slots_[key] : kNoSlot; }
  Result<std::span<std::byte>> take_memory(std::uint64_t size);
  Slot note_key(RecordKey key);
  void make_free_slot();
  bool free_a_spare();
  bool evict_one();
  void release(Slot slot);
  void keep_spare(std::span<std::byte> memory);

  std::uint64_t budget_;
  RecordMemory memory_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<Entry> entries_;
  std::vector<Slot> free_slots_;  // has room for all slots
  std::vector<Slot> slots_;       // by key, of entries that are not forgotten; else kNoSlot
  std::map<std::size_t, std::vector<std::span<std::byte>>> spare_;  // by size, of ended entries
  std::uint64_t allocated_ = 0;
  std::uint64_t pinned_ = 0;
};

}  // namespace moepack
