// A trace through caches of several budgets and policies at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/replay/cache_replay.h"
#include "runtime/replay/speed_model.h"
#include "runtime/replay/trace_source.h"

namespace moepack {

// The passes of one token each (decoding), or of several (prompts, or several sequences).
struct ReplayPart {
  std::uint64_t passes = 0;
  std::uint64_t tokens = 0;
  CacheUse use;
  double seconds = 0;       // predicted
  double read_seconds = 0;  // of them during which the disk is at work
};

struct ReplayResult {
  ReplayPart decode;
  ReplayPart prompt;

  CacheUse use() const;  // of both
};

// From the trace's start to its end, one result for each of `caches`, which are empty. The first
// `skip` passes fill the caches and are not counted.
Result<std::vector<ReplayResult>> replay_trace(TraceSource& source,
                                               std::span<const std::unique_ptr<CacheReplay>> caches,
                                               const SpeedModel& speed, std::uint64_t skip);

}  // namespace moepack
