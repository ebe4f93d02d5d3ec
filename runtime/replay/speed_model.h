// How long a pass takes with a given number of misses: arithmetic over the times of a trace.
//
//   pass  = head + sum over layers of (mix + experts)
//   experts without a miss = the layer's computing of experts, e
//   experts with misses    = e + max(0, read + delay - overlap * e)
//   read  = first + bytes / rate
//
// Nothing of a layer can be read before its router has run, so reading overlaps with the experts
// alone, and not with those that arrived last. How much of e it overlaps with, and how much later
// than the disk the engine goes on, is fitted to the trace's waiting.
#pragma once

#include <cstdint>
#include <optional>

#include "formats/base/status.h"
#include "formats/calibration/routing_trace.h"
#include "runtime/replay/cache_replay.h"
#include "runtime/replay/trace_source.h"

namespace moepack {

struct ReadSpeed {
  double first_seconds = 0;  // before the first byte of a layer's reads, beyond its share
  double bytes_per_second = 0;
};

struct ReadOverlap {
  double share = 0.75;  // of a layer's computing of experts that goes on while it reads, 0 … 1
  double delay_seconds = 0;
};

// What is not in the trace, or is to replace what is there.
struct SpeedSettings {
  std::optional<ReadSpeed> reading = std::nullopt;
  std::optional<double> token_seconds = std::nullopt;  // of a generated token that misses nothing
};

// The sums of a trace that the model is made from.
struct TraceTimes {
  std::uint64_t passes = 0;
  std::uint64_t tokens = 0;
  std::uint64_t single_passes = 0;                  // of one token each
  double single_seconds = 0;                        // computing of those
  std::optional<ReadSpeed> reading = std::nullopt;  // of the run; nullopt: it read next to nothing
  ReadOverlap overlap = {};                         // of the run, where it read; else a guess
  std::uint64_t cut_bytes = 0;                      // TraceSource::cut_bytes
};
// Reads the whole trace. `skip`: passes at the start that are left out.
Result<TraceTimes> measure_trace(TraceSource& source, std::uint64_t skip);

class SpeedModel {
 public:
  SpeedModel(const TraceTimes& times, const SpeedSettings& settings);

  // False where neither the trace nor the settings tell how long computing or reading takes.
  bool knows_computing() const { return knows_computing_; }
  bool knows_reading() const { return reading_.has_value(); }
  const std::optional<ReadSpeed>& reading() const { return reading_; }
  // Of a generated token that misses nothing; 0: not known.
  double token_seconds() const { return token_seconds_; }

  // Seconds of a layer with these misses, and of what is of no layer.
  double layer_seconds(const TracePass& pass, const TraceLayer& layer, const CacheUse& use) const;
  double head_seconds(const TracePass& pass) const;
  double read_seconds(const CacheUse& use) const;

 private:
  bool has_times_;  // the trace's
  bool knows_computing_;
  double scale_ = 1;  // of the trace's times
  double token_seconds_ = 0;
  std::optional<ReadSpeed> reading_;
  ReadOverlap overlap_;
};

}  // namespace moepack
