// Profiles of expert use, ours and those of other engines, told apart by their content:
//
//   moepack.profile      {"format": "moepack.profile", …} formats/calibration/expert_profile.h
//   FREQ_DUMP            lines in a log of flash-moe                formats/calibration/freq_dump.h
//   freq-json            {"tokens": T, "K": K, "layers": {"0": [ids], …}}   flash-moe's
//                        `--freq-json`: ids by falling use, without counts
//   counts-json          {"0": {"17": count, …}, …}                 by layer and expert, the input
//   of
//                        flash-moe's sensitivity_analysis.py
//   hot-cache perf JSON  {"schema": "llama.cpp.moe_layer_perf.v1" or
//                        "llama.cpp.moe_layer_opt_perf.v1", "n_expert": E, "n_expert_used": K,
//                        "layers": [{"layer": i, "hot_experts": [[id, count], …],
//                        "cold_experts": […], "experts": […]}, …]}   llama.cpp with the hot cache
//   counts-binary        i32 layers, i32 experts, u32 counts[layers][experts], little-endian:
//                        flash-moe-vulkan's `--profile-out`
//
// What none of them states (layers, experts) must be known from elsewhere.
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

// Reads `path`, whatever of the above it is; logs piece by piece, of any size. `known`: what is
// known about the model; a file that states something else is kCorrupt, one that matches nothing
// kUnsupported with the list of what is understood.
Result<ProfileInput> read_profile_input(const std::filesystem::path& path,
                                        const ExpertShape& known);

// Its parts (fuzz targets). JSON of any kind above; `file` names it in errors.
Result<ProfileInput> parse_profile_json(std::string_view text, const std::string& file,
                                        const ExpertShape& known);
// counts-binary, whole.
Result<ProfileInput> parse_counts_binary(std::span<const std::byte> bytes, const std::string& file,
                                         const ExpertShape& known);

// kUnsupported: `file` is none of them.
Status no_profile_error(std::string_view file);

}  // namespace moepack
