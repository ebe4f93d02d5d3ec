// The expert cache without experts: the same RecordCache and policies as in ExpertStore are asked
// for the same records in the same order, so hits and misses are those of the run. Memory is
// reserved and never written, so none is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/routing_trace.h"
#include "runtime/store/kept_records.h"
#include "runtime/store/record_cache.h"
#include "runtime/store/store_options.h"

namespace moepack {

// Memory that all records of the model take, and those of the largest token: the most and the least
// that a cache is good for (MemoryPlan::pack_bytes and cache_floor_bytes).
std::uint64_t all_record_memory(const TraceModel& model);
std::uint64_t token_record_memory(const TraceModel& model);

// What a layer asked the cache for.
struct CacheUse {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t missed_bytes = 0;

  CacheUse& operator+=(const CacheUse& other);
  double hit_rate() const;  // 0 … 1; 0 without a use
};

// Used by one thread.
class CacheReplay {
 public:
  // `budget`: as RecordCache counts it, at most all_record_memory() is used. kInvalidArgument when
  // it is below token_record_memory().
  static Result<std::unique_ptr<CacheReplay>> create(const TraceModel& model, std::uint64_t budget,
                                                     CachePolicy policy,
                                                     const KeptRecords& kept = {});

  std::uint64_t budget_bytes() const { return cache_.budget_bytes(); }
  // The layer's experts, in as many batches as the budget asks for. Errors of RecordCache.
  Result<CacheUse> run(const TraceLayer& layer);

 private:
  CacheReplay(const TraceModel& model, std::uint64_t budget, CachePolicy policy,
              const KeptRecords& kept);
  Status run_batch(std::uint32_t layer, std::span<const TraceUse> uses, CacheUse& use);

  TraceModel model_;
  RecordCache cache_;
  std::vector<std::size_t> most_;          // by layer: records of a batch
  std::vector<RecordCache::Slot> pinned_;  // of the batch
};

}  // namespace moepack
