// What becomes of a GPU's missing experts: those of a model whose experts exceed its memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

enum class ColdExperts : std::uint8_t {
  kFetch,  // they are copied to the device when they are chosen
  kCpu,    // the processor computes them, from the machine's memory, beside the device
  kAuto,   // one of the two: choose_cold_experts()
};

// "fetch", "cpu" or "auto".
std::string_view cold_experts_name(ColdExperts way);
// kInvalidArgument for any other text.
Result<ColdExperts> parse_cold_experts(std::string_view text);

// kFetch or kCpu, and why, for people; an empty reason where nothing was to be chosen.
struct ColdExpertsChoice {
  ColdExperts way = ColdExperts::kFetch;
  std::string reason;
};
// `shares_memory`: whether the device's memory is the machine's own. Then both read the same bytes
// at the same rate, so that computing them elsewhere wins nothing; a card of its own gets them
// through a bus that is slower than the processor's memory. By reasoning, not by measuring: what is
// chosen decides the last bits of results, and must not change from run to run. Pure.
ColdExpertsChoice choose_cold_experts(ColdExperts wanted, bool shares_memory);

}  // namespace moepack
