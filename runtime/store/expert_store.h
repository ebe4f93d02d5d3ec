// Experts on the SSD, a part of them in RAM: one expert is one record is one read. A record is
// looked for in the cache (record_cache.h), else read (record_reader.h), and compared with its
// checksum after its first read (record_check.h). What a batch needs is pinned while it is used.
//
// Thread rule: begin(), max_batch(), stats() and reset_stats() may be called from any thread at any
// time. A Batch is used by one thread at a time; different batches of one store may be used by
// different threads at once, and may share experts. There is no thread of the store's own: of the
// threads that wait for a batch one reaps what the reader has, for all of them, and the others wait
// for it. None waits longer than its own records take: what is reaped is ready at once, because the
// reader has taken the checksums, and everybody is woken after every reap. A record that two
// batches want is read once, and both wait for it.
//
// Memory that the system does not give is the kIo of begin(), which then leaves nothing pinned.
// Later on only what gives a list or an error can find none; it throws std::bad_alloc and has then
// given nothing. A batch ends without memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"
#include "runtime/store/eviction_policy.h"
#include "runtime/store/kept_records.h"
#include "runtime/store/record_reader.h"
#include "runtime/store/store_options.h"
#include "runtime/store/timeline.h"

namespace moepack {

struct ExpertStoreOptions {
  // Budget for records in memory, each counted with its padding (record_memory_bytes()); at least
  // one record for each of concurrent_batches. It is never exceeded.
  std::uint64_t cache_bytes = 0;
  std::uint32_t io_threads = 4;  // concurrent reads
  // As many batches as this, each of at most max_batch() experts, fit into the budget at once.
  std::uint32_t concurrent_batches = 1;
  // Who leaves (make_policy). Records that are kept take their bytes from max_batch(), not from
  // batches: where a batch needs them, they leave.
  CachePolicy policy = CachePolicy::kLru;
  double token_uses = 1;
  KeptRecords kept = {};
  // Experts that begin_ahead() takes of one layer at most; where the budget is small, fewer. There
  // are batches of two layers at most.
  std::uint32_t ahead_experts = 0;
  Timeline* timeline = nullptr;  // notes every read; may be null, outlives the store
};

struct ExpertStoreStats {
  std::uint64_t hits = 0;    // experts in memory, or on their way there for another use
  std::uint64_t misses = 0;  // experts read
  std::uint64_t bytes_read = 0;
  std::uint64_t ahead_reads = 0;      // begun by begin_ahead(); not among the misses
  std::uint64_t ahead_used = 0;       // of those, experts that a batch asked for; they are hits
  double read_seconds = 0;            // wall time during which at least one read was under way
  double wait_seconds = 0;            // that take_ready() waited, of all threads
  std::uint64_t allocated_bytes = 0;  // memory of the cache now; reset_stats() leaves it

  double hit_rate() const;  // of all uses, 0 … 1; 0 without one
  // Of another store as of one with this one.
  ExpertStoreStats& operator+=(const ExpertStoreStats& other);
};

// One expert of a batch. `record` is page-aligned memory of layout->record_bytes bytes, owned by
// the store and valid until the batch ends.
struct ExpertHandle {
  const ExpertLayout* layout = nullptr;
  const std::byte* record = nullptr;
  bool was_resident = false;
};

// An expert of a batch whose record is there, or can not be had.
struct ReadyExpert {
  std::size_t index = 0;  // into handles()
  Status status = {};     // not ok: the record holds no expert; file, expert, offset
};

class ExpertStore {
 public:
  // Opens every layer file, to be read by threads, and evicts as the options say. The manifest is
  // copied. kInvalidArgument for a budget that is too small; the errors of ThreadReader::open.
  static Result<std::unique_ptr<ExpertStore>> open(const std::filesystem::path& pack_directory,
                                                   const PackManifest& manifest,
                                                   const ExpertStoreOptions& options);
  // The same with a reader of the layer files, in the order of manifest.layers, and a policy.
  static Result<std::unique_ptr<ExpertStore>> open_with(std::unique_ptr<RecordReader> reader,
                                                        std::unique_ptr<EvictionPolicy> policy,
                                                        const std::filesystem::path& pack_directory,
                                                        const PackManifest& manifest,
                                                        const ExpertStoreOptions& options);
  // All batches have ended.
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  // How many experts of one layer may stand in one batch within the budget (>= 1).
  std::size_t max_batch(std::uint32_t layer) const;
  // Sets is_resident[e] to whether expert e of the layer is in memory or on its way there. One
  // entry an expert.
  void find_resident(std::uint32_t layer, std::span<std::uint8_t> is_resident) const;

  // Pins the experts of one layer until it is destroyed, which waits for its reads.
  class Batch {
   public:
    Batch(Batch&& other) noexcept;
    Batch& operator=(Batch&&) = delete;
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch();

    // In the order of begin()'s experts. record is readable at once where was_resident, else after
    // next_ready() or take_ready() gave the expert with an ok status, or wait() returned ok.
    std::span<const ExpertHandle> handles() const { return handles_; }

    // The next expert that can be used: first those that were resident, in the order of handles(),
    // then the others in the order in which they arrived. Waits while reads are under way; nullopt
    // when every expert was given. A failed read is the status of its own expert alone.
    std::optional<ReadyExpert> next_ready();
    // The same for all experts that can be used now, at least one: a caller with many threads
    // computes them together. Empty when every expert was given.
    std::vector<ReadyExpert> take_ready();
    // Experts that next_ready() and take_ready() have not seen to be ready.
    std::size_t missing() const { return order_.size() - seen_; }
    // Waits for all reads of the batch; the first error in the order of handles() if any. Gives no
    // expert: next_ready() and take_ready() go on as before.
    Status wait();

   private:
    friend class ExpertStore;
    Batch(ExpertStore* store, std::size_t experts);
    void collect();
    ReadyExpert seen_at(std::size_t place) const;
    ExpertStore* store_;  // null after a move
    std::vector<ExpertHandle> handles_;
    std::vector<std::size_t> slots_;  // of the cache, by handle
    // The handles as they are given: [0, given_) were given, [given_, seen_) were seen to be ready,
    // and the rest was not.
    std::vector<std::size_t> order_;
    std::size_t given_ = 0;
    std::size_t seen_ = 0;
  };

  // Starts reading what is missing of `experts`; one that is named twice is read once.
  // kInvalidArgument for an expert that the pack does not have, and when the budget has no room
  // beside the batches there are: begin() does not wait for another batch to end. That cannot
  // happen with at most max_batch(layer) experts in each of at most concurrent_batches batches. kIo
  // when memory is short.
  Result<Batch> begin(std::uint32_t layer, std::span<const std::uint32_t> experts);

  // Starts to read, of experts that a later batch will probably ask for, the first ahead_experts
  // that fit the share of the budget kept for them, and pins them as a batch does. The batch is not
  // for computing: it ends when the later one does. Its experts are counted when they are asked
  // for.
  Result<Batch> begin_ahead(std::uint32_t layer, std::span<const std::uint32_t> experts);

  ExpertStoreStats stats() const;
  void reset_stats();

 private:
  struct Impl;
  explicit ExpertStore(std::unique_ptr<Impl> impl);
  Result<Batch> start_batch(std::uint32_t layer, std::span<const std::uint32_t> experts,
                            bool is_ahead);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
