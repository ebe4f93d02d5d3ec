// From measured sensitivities to the widths that lose least within a size.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convert/quantize/expert_bits.h"
#include "convert/quantize/sensitivity_table.h"
#include "formats/base/status.h"

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
  // How far the last round's knapsack may be from its best solution, relative; 0: solved exactly.
  double gap = 0;
  std::vector<double> layer_divergence;  // [layers]: predicted
  std::vector<UniformPack> uniform;      // those that no other beats in both, by size
};

// Predicted KLD of a pack: layers add up.
double predicted_divergence(const SensitivityTable& table,
                            const std::vector<LayerExpertBits>& bits);

// Size and predicted loss of a pack with these widths; all 0 where the table is not finished, is of
// another model or quantizer, or has not measured one of the widths.
AllocationForecast forecast_of(const SensitivityTable& table, const ExpertBits& bits);

// Bytes of an expert's record with its padding; kInvalidArgument: the shape cannot be stored.
Result<std::uint64_t> stored_bytes(const SensitivityTable& table, const BitTriple& bits);

// Layers' losses are concave in their errors, so that the choice is made in rounds, each with the
// losses' tangents at the errors of the round before: no round is worse than the one before it.
// Layer files of at most `budget` bytes, padding included. `table` is finished. kInvalidArgument:
// not even the smallest widths fit, or the budget is more than the largest take.
Result<BitPlan> plan_bits(const SensitivityTable& table, std::uint64_t budget);

// kInvalidArgument as of plan_bits; of a table without layers, too.
Status check_budget(const SensitivityTable& table, std::uint64_t budget);

// Bytes that a target of so many bits a weight stands for.
std::uint64_t bytes_of_bits_per_weight(const SensitivityTable& table, double bits_per_weight);

}  // namespace moepack
