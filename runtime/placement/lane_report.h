// What the lanes did as JSON in the schema of llama.cpp's hot cache, so that its tools read our
// reports and parse_profile_json() (formats/calibration/foreign_profile.h) reads both. "engine" is
// a key of our own.
#pragma once

#include <string>

#include "runtime/placement/lane_use.h"

namespace moepack {

// Layers without a call are left out. Times in microseconds a call. The text depends on `use`
// alone.
std::string lane_report_text(const LaneUse& use);
// What a run without counters reports.
std::string no_lane_report_text();

}  // namespace moepack
