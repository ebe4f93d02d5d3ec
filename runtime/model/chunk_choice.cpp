#include "runtime/model/chunk_choice.h"

namespace moepack {
namespace {

// Parts of the expert cache that activations may be as large as.
constexpr std::uint64_t kCacheShare = 8;
constexpr std::uint64_t kCacheShareBeyond = 16;

bool leaves_cache(const MemoryPlan& plan, const MemoryRequest& request) {
  const std::uint64_t share =
      request.chunk_tokens > kMostCachedChunk ? kCacheShareBeyond : kCacheShare;
  return request.cache_bytes != 0 || plan.holds_all_experts() ||
         plan.scratch_bytes <= plan.cache_bytes / share;
}

}  // namespace

std::uint64_t automatic_chunk(const MemoryRequest& request, const PlanOf& plan_of) {
  MemoryRequest tried = request;
  tried.chunk_tokens = kMostCachedChunk;
  const MemoryPlan usual = plan_of(tried);
  const bool all_cached = usual.holds_all_experts() && fits_memory(usual, tried);
  for (const std::uint64_t tokens : kAutomaticChunks) {
    if (all_cached && tokens > kMostCachedChunk) continue;
    tried.chunk_tokens = tokens;
    const MemoryPlan plan = plan_of(tried);
    if (fits_memory(plan, tried) && leaves_cache(plan, tried)) return tokens;
  }
  return kAutomaticChunks.back();
}

}  // namespace moepack
