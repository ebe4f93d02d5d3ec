// `bench --replay`: caches of several budgets and policies, run over a trace without the weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convert/cli/row_output.h"
#include "formats/base/status.h"

namespace moepack::cli {

struct ReplayFlags {
  std::string trace;                                    // a file, or synthetic:SPEC
  std::string model;                                    // empty: the trace alone
  std::string pack;                                     // of the model
  std::vector<std::filesystem::path> pack_directories;  // further ones of the model
  std::string pin;                                      // a profile; empty: none
  std::vector<std::uint64_t> cache_mib;                 // empty: shares of all experts
  std::vector<std::string> policies;                    // empty: all
  std::uint64_t skip = 0;                               // passes that are not counted
  std::vector<double> disk_gbs;  // many reads at once, one at a time; empty: measured
  double token_ms = 0;           // 0: as in the trace
  BenchFormat format = BenchFormat::kMarkdown;
};

Status run_replay(const ReplayFlags& flags);

}  // namespace moepack::cli
