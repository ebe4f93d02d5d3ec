// Experts on the SSD, a part of them in RAM: one expert is one record is one read. A cache with a
// byte budget keeps the least recently used out; what a batch needs is pinned while it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

struct ExpertStoreOptions {
  std::uint64_t cache_bytes = 0;  // budget for records in memory; at least one batch's worth
  std::uint32_t io_threads = 4;   // concurrent reads
};

struct ExpertStoreStats {
  std::uint64_t hits = 0;    // experts found in memory
  std::uint64_t misses = 0;  // experts read
  std::uint64_t bytes_read = 0;
  double read_seconds = 0;  // wall time during which at least one read was under way
};

// One expert of a batch. `record` is page-aligned memory of layout->record_bytes bytes, owned by
// the store and valid until the batch ends.
struct ExpertHandle {
  const ExpertLayout* layout = nullptr;
  const std::byte* record = nullptr;
  bool was_resident = false;
};

class ExpertStore {
 public:
  // Opens every layer file. The manifest is copied.
  static Result<std::unique_ptr<ExpertStore>> open(const std::filesystem::path& pack_directory,
                                                   const PackManifest& manifest,
                                                   const ExpertStoreOptions& options);
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  // How many experts of one layer may stand in one batch within the budget (>= 1).
  std::size_t max_batch(std::uint32_t layer) const;

  // Pins the experts of one layer until it is destroyed. One batch at a time, from one thread.
  class Batch {
   public:
    Batch(Batch&& other) noexcept;
    Batch& operator=(Batch&&) = delete;
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    ~Batch();

    // In the order of begin()'s experts. record is readable at once where was_resident, else after
    // wait() returned ok.
    std::span<const ExpertHandle> handles() const { return handles_; }
    // Waits for all reads of the batch; the first error if any (file, expert, offset).
    // The checksum of a record, where the manifest has them, is compared the first time it is read.
    Status wait();

   private:
    friend class ExpertStore;
    explicit Batch(ExpertStore* store) : store_(store) {}
    ExpertStore* store_;
    std::vector<ExpertHandle> handles_;
    std::vector<std::size_t> slots_;  // indices of the store's cache entries
  };

  // Starts reading what is missing of `experts` (distinct, at most max_batch(layer)).
  Result<Batch> begin(std::uint32_t layer, std::span<const std::uint32_t> experts);

  ExpertStoreStats stats() const;
  void reset_stats();

 private:
  struct Impl;
  explicit ExpertStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
