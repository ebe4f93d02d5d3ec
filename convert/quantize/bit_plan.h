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

// The predicted KL divergence of a pack in nats, which is the sum over its layers.
double predicted_divergence(const SensitivityTable& table,
                            const std::vector<LayerExpertBits>& bits);

// The size and predicted loss of a pack with these widths; all 0 where the table is not finished,
// is of another model or quantizer, or has not measured one of the widths.
AllocationForecast forecast_of(const SensitivityTable& table, const ExpertBits& bits);

// Bytes of an expert's record with its padding; kInvalidArgument when the shape cannot be stored.
Result<std::uint64_t> stored_bytes(const SensitivityTable& table, const BitTriple& bits);

// Chooses the widths that lose least with layer files of at most `budget` bytes, padding included.
// `table` is finished. A layer's loss is concave in its error, so the choice is made in rounds,
// each with the losses' tangents at the errors of the round before; no round is worse than the one
// before it. kInvalidArgument: not even the smallest widths fit, or the budget is more than the
// largest widths take.
Result<BitPlan> plan_bits(const SensitivityTable& table, std::uint64_t budget);

// Checks a budget as plan_bits does, with the same errors; the table may have no layers yet.
Status check_budget(const SensitivityTable& table, std::uint64_t budget);

// The bytes of a pack with `bits_per_weight` bits for each weight.
std::uint64_t bytes_of_bits_per_weight(const SensitivityTable& table, double bits_per_weight);

}  // namespace moepack
