// How --timing shows where the time of tokens goes.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>

#include "runtime/model/stage_times.h"
#include "runtime/placement/lane_use.h"
#include "runtime/vulkan/device_work.h"

namespace moepack::cli {

// Some tokens and what they took.
struct TimedPart {
  std::string name;
  StageSeconds stages;
  std::uint64_t tokens = 0;
};

// A Markdown table: a line for each stage and for the total, for each part two columns,
// milliseconds a token and percent of the part's time.
std::string timing_table(std::span<const TimedPart> parts);
// The kernels of a device, a line for what lies between two barriers, slowest first: microseconds a
// run, runs, percent of all; then submissions, dispatches and barriers a batch.
std::string device_table(const DeviceReport& report);
// A line about experts that were computed on the device and on the processor at once; empty where
// there were none: hits, and of a layer in both lanes their times in microseconds.
std::string lanes_text(const LaneTimes& lanes);
// The same as JSON, null where there were none; with what was counted (`use`) also why layers ran
// in one lane.
nlohmann::ordered_json lanes_json(const LaneTimes& lanes, const std::optional<LaneUse>& use);
// Milliseconds a token by stage_name(), and "total".
nlohmann::ordered_json stages_json(const StageSeconds& stages, std::uint64_t tokens);

}  // namespace moepack::cli
