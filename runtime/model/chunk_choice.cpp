#include "runtime/model/chunk_choice.h"

namespace moepack {
namespace {

// Part of the expert cache that activations may be as large as.
constexpr std::uint64_t kCacheShare = 8;

bool leaves_cache(const MemoryPlan& plan, const MemoryRequest& request) {
  return request.cache_bytes != 0 || plan.cache_bytes == plan.pack_bytes ||
         plan.scratch_bytes <= plan.cache_bytes / kCacheShare;
}

}  // namespace

std::uint64_t automatic_chunk(const MemoryRequest& request, const PlanOf& plan_of) {
  MemoryRequest tried = request;
  for (const std::uint64_t tokens : kAutomaticChunks) {
    tried.chunk_tokens = tokens;
    const MemoryPlan plan = plan_of(tried);
    if (fits_memory(plan, tried) && leaves_cache(plan, tried)) return tokens;
  }
  return kAutomaticChunks.back();
}

}  // namespace moepack
