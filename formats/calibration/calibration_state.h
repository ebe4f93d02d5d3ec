// How far an unfinished calibration has come. The file stands in CALIB from the first moment on and
// goes when calibration.json is there; a directory with it is no calibration.
//
//   {"state_version": 1, "plan": "9c1f…", "what": "small, 279000 tokens, …",
//    "tokens": 279000, "experts_per_token": 4, "num_experts": 16,
//    "residual_checksum": "03aa…", "layers": [as in calibration.json, those that are finished]}
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/calibration.h"

namespace moepack {

constexpr const char* kCalibrationStateName = "calibration.unfinished";

struct CalibrationState {
  std::uint64_t plan = 0;  // digest of everything that the result depends on
  std::string what;        // what is being calibrated, in words, for messages
  std::uint64_t tokens = 0;
  std::uint32_t num_experts = 0;
  std::uint32_t experts_per_token = 0;
  std::vector<CalibrationLayer> layers;  // finished: 0, 1, …
  // XXH3-64 of the hidden states after the last finished layer, residual_file_name(layers.size());
  // 0 without one.
  std::uint64_t residual_checksum = 0;
};

// "residual_03.f32": hidden states after three layers, float32 [tokens, hidden_size].
std::string residual_file_name(std::size_t layers_done);

std::string calibration_state_text(const CalibrationState& state);
// Parses such a text (fuzz target). `file` names it in errors.
Result<CalibrationState> parse_calibration_state(std::string_view text, const std::string& file);
Result<CalibrationState> read_calibration_state(const std::filesystem::path& directory);
// Writes the state to a new file, syncs it and renames it into place.
Status write_calibration_state(const std::filesystem::path& directory,
                               const CalibrationState& state);

}  // namespace moepack
