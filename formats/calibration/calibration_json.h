// One layer's entry of a calibration as JSON, as it stands in the manifest and in the state of an
// unfinished calibration.
#pragma once

#include <string>

#include "formats/base/json_fields.h"
#include "formats/calibration/calibration.h"

namespace moepack {

// "layer_00.bin.zst".
std::string calibration_file_name(std::uint32_t layer);

// A JSON object on one line.
std::string calibration_layer_text(const CalibrationLayer& layer);
// Parses member `index` of the array "layers" of `root`: its file name must be that of the layer,
// and its samples must be num_experts numbers that add up to `uses`. Anything else is kCorrupt.
Result<CalibrationLayer> parse_calibration_layer(const JsonFields& root, std::uint32_t index,
                                                 std::uint32_t num_experts, std::uint64_t uses);

}  // namespace moepack
