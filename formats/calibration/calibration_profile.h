// How often a calibration's text used each expert: its recorded routing as a profile.
#pragma once

#include <filesystem>

#include "formats/calibration/expert_profile.h"

namespace moepack {

// Counts and weights of every layer of the calibration in `directory`. The routing of one layer at
// a time is in memory (6 bytes a use). Errors: those of the calibration's readers.
Result<ExpertProfile> profile_of_calibration(const std::filesystem::path& directory);

}  // namespace moepack
