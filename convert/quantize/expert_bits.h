// The width of every matrix of every expert: what an allocation decides and a tiered pack is made
// by. Schema of the file: docs/allocation-format.md.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/calibration/hot_experts.h"
#include "formats/weights/expert_layout.h"

namespace moepack {

constexpr std::uint32_t kAllocationFormatVersion = 1;

// [projection][expert] of one layer; without experts, empty, or of no meaning.
using LayerExpertBits = std::array<std::vector<std::uint8_t>, kProjections>;

// What an allocation promises, in nats of KL divergence; for people.
struct AllocationForecast {
  std::uint64_t pack_bytes = 0;  // of all layer files
  double bits_per_weight = 0;
  double divergence = 0;
  // Of packs with the same widths in all experts, on the line between the two nearest sizes.
  double uniform_divergence = 0;
  // How much less than that is lost: 0.05 is 5 %.
  double gain() const { return uniform_divergence > 0 ? 1 - divergence / uniform_divergence : 0; }
};
// A gain below this is not worth a pack that only some engines read.
constexpr double kWorthwhileGain = 0.03;

struct ExpertBits {
  std::string model;                     // base name; "": unknown
  std::uint64_t source_fingerprint = 0;  // of the weights' source; 0: unknown
  std::string method;                    // the quantizer's that it was measured with; "": none
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint32_t group_size = 0;
  std::uint64_t target_bytes = 0;       // 0: none
  std::vector<LayerExpertBits> layers;  // [num_layers]
  AllocationForecast forecast;          // all 0: none

  std::uint32_t of(std::uint32_t layer, std::uint32_t expert, Projection p) const {
    return layers[layer][static_cast<std::size_t>(p)][expert];
  }
};

// Hot experts in one width, all others in another.
ExpertBits hot_and_cold_bits(const HotExperts& hot, std::uint32_t hot_bits, std::uint32_t cold_bits,
                             std::uint32_t group_size);

// Deterministic.
std::string expert_bits_text(const ExpertBits& bits);
// Checked (fuzz target). `file` names it in errors.
Result<ExpertBits> parse_expert_bits(std::string_view text, const std::string& file);
Result<ExpertBits> read_expert_bits(const std::filesystem::path& file);

}  // namespace moepack
