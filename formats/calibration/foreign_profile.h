// Profiles of expert use, ours and those of other engines, told apart by their content:
//
//   moepack.profile      {"format": "moepack.profile", …}
//                        See formats/calibration/expert_profile.h.
//   FREQ_DUMP            lines in a log of flash-moe; see formats/calibration/freq_dump.h
//   freq-json            {"tokens": T, "K": K, "layers": {"0": [ids], …}}
//                        flash-moe's `--freq-json`: ids by falling use, without counts
//   counts-json          {"0": {"17": count, …}, …}
//                        counts by layer and expert, the input of flash-moe's
//                        sensitivity_analysis.py
//   hot-cache perf JSON  {"schema": "llama.cpp.moe_layer_perf.v1" or
//                        "llama.cpp.moe_layer_opt_perf.v1", "n_expert": E, "n_expert_used": K,
//                        "layers": [{"layer": i, "hot_experts": [[id, count], …],
//                        "cold_experts": […], "experts": […]}, …]}
//                        llama.cpp with the hot cache
//   counts-binary        i32 layers, i32 experts, u32 counts[layers][experts], little-endian:
//                        flash-moe-vulkan's `--profile-out`
//
// Numbers of layers and experts that a file does not state must be known from elsewhere.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/expert_profile.h"

namespace moepack {

struct ProfileInput {
  ExpertProfile profile;
  std::string format;              // as in the list above
  std::vector<std::string> notes;  // what to know about it; one line each
};

// Reads `path`, whichever of the above it is. Logs may have any size and are read piece by piece.
// `known` is what is known about the model; a file that states something else is kCorrupt, and one
// that matches nothing is kUnsupported with the list of what is understood.
Result<ProfileInput> read_profile_input(const std::filesystem::path& path,
                                        const ExpertShape& known);

// The two parts of read_profile_input are fuzz targets. This one parses JSON of any kind above;
// `file` names it in errors.
Result<ProfileInput> parse_profile_json(std::string_view text, const std::string& file,
                                        const ExpertShape& known);
// Parses `bytes`, all of a counts-binary file.
Result<ProfileInput> parse_counts_binary(std::span<const std::byte> bytes, const std::string& file,
                                         const ExpertShape& known);

// The kUnsupported error for a file that is none of the above.
Status no_profile_error(std::string_view file);

}  // namespace moepack
