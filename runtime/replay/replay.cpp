#include "runtime/replay/replay.h"

namespace moepack {
namespace {

Status run_pass(const TracePass& pass, CacheReplay& cache, const SpeedModel& speed,
                ReplayPart& part) {
  ++part.passes;
  part.tokens += pass.tokens;
  part.seconds += speed.head_seconds(pass);
  for (const TraceLayer& layer : pass.layers) {
    MOE_ASSIGN_OR_RETURN(const CacheUse use, cache.run(layer));
    part.use += use;
    part.seconds += speed.layer_seconds(pass, layer, use);
    part.read_seconds += speed.read_seconds(use);
  }
  return Status::ok();
}

}  // namespace

CacheUse ReplayResult::use() const {
  CacheUse sum = decode.use;
  sum += prompt.use;
  return sum;
}

Result<std::vector<ReplayResult>> replay_trace(TraceSource& source,
                                               std::span<const std::unique_ptr<CacheReplay>> caches,
                                               const SpeedModel& speed, std::uint64_t skip) {
  MOE_RETURN_IF_ERROR(source.rewind());
  std::vector<ReplayResult> results(caches.size());
  for (std::uint64_t seen = 0;; ++seen) {
    MOE_ASSIGN_OR_RETURN(const TracePass* const pass, source.next());
    if (pass == nullptr) return results;
    for (std::size_t i = 0; i < caches.size(); ++i) {
      ReplayPart skipped;
      ReplayPart& counted = pass->tokens == 1 ? results[i].decode : results[i].prompt;
      MOE_RETURN_IF_ERROR(run_pass(*pass, *caches[i], speed, seen < skip ? skipped : counted));
    }
  }
}

}  // namespace moepack
