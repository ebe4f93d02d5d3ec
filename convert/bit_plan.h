// From measured sensitivities to the widths that lose least within a size.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convert/expert_bits.h"
#include "convert/sensitivity_table.h"
#include "formats/status.h"

namespace moepack {

// Widths of gate, up, down.
using BitTriple = std::array<std::uint32_t, kProjections>;

// All experts in the same widths.
struct UniformPack {
  BitTriple bits{};
  std::uint64_t bytes = 0;
  double divergence = 0;  // predicted
};

struct BitPlan {
  ExpertBits bits;  // with its forecast
  // Predicted loss that certainly cannot be undercut with these layers' weights per error: how far
  // the allocation may be from the optimum.
  double bound = 0;
  std::vector<double> layer_gain;        // [layers]: nats per unit of squared error that were used
  std::vector<double> layer_divergence;  // [layers]: predicted
  std::vector<UniformPack> uniform;      // those that no other beats in both, by size
};

// Predicted KLD of a pack: layers add up.
double predicted_divergence(const SensitivityTable& table,
                            const std::vector<LayerExpertBits>& bits);

// Bytes of an expert's record with its padding; kInvalidArgument: the shape cannot be stored.
Result<std::uint64_t> stored_bytes(const SensitivityTable& table, const BitTriple& bits);

// Layer files of at most `budget` bytes, padding included. `table` is finished. kInvalidArgument:
// not even the smallest widths fit, or the budget is more than the largest take.
Result<BitPlan> plan_bits(const SensitivityTable& table, std::uint64_t budget);

// Bytes that a target of so many bits a weight stands for.
std::uint64_t bytes_of_bits_per_weight(const SensitivityTable& table, double bits_per_weight);

}  // namespace moepack
