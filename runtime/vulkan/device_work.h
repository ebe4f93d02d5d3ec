// What a device has done since its backend was opened, for reports.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace moepack {

struct DeviceWork {
  std::uint64_t batches = 0;
  std::uint64_t submissions = 0;
  std::uint64_t dispatches = 0;
  std::uint64_t barriers = 0;
};

// Of the kernels between two barriers, by their names, as "matvec_q4 x3, matvec_bf16".
struct KernelTime {
  std::uint64_t runs = 0;
  double seconds = 0;
};
using KernelTimes = std::map<std::string, KernelTime>;

// Layers whose experts did not all lie on the device, computed by it and the processor at once:
// since the last reset_stats().
struct LaneTimes {
  std::uint64_t hot_layers = 0;     // all of whose experts were there: no cold lane
  std::uint64_t joined_layers = 0;  // with a cold lane
  std::uint64_t hits = 0;           // uses of experts on the device
  std::uint64_t misses = 0;         // uses of experts that the processor computed
  // Of joined layers: each lane by itself, both from their begin to their end, and what the host
  // waited for the device after its own lane.
  double hot_seconds = 0;
  double cold_seconds = 0;
  double both_seconds = 0;
  double join_wait_seconds = 0;

  // Seconds in which both lanes were at work.
  double overlap_seconds() const {
    return std::max(0.0, hot_seconds + cold_seconds - both_seconds);
  }
};

struct DeviceReport {
  DeviceWork work;
  std::uint64_t taken_bytes = 0;  // of its memory, now
  LaneTimes lanes;
  KernelTimes kernels;  // while stages were timed
};

}  // namespace moepack
