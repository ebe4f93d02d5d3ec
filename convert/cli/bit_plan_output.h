// Shows sensitivities and allocations of bits to people, and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "convert/quantize/bit_plan.h"
#include "convert/quantize/sensitivity_table.h"

namespace moepack::cli {

// Prints size, predicted loss and what uniform packs would lose on stderr. `file` is where the plan
// was written, or "".
void print_bit_plan(const BitPlan& plan, const std::string& file);

// "predicted KL divergence … nats, uniform packs of this size …".
std::string forecast_text(const AllocationForecast& forecast);

// Says so of a forecast whose gain is not worth a mixed pack; "" where it is worth one.
std::string gain_warning(const AllocationForecast& forecast);

// Prints layers, widths and the experts at both extremes on stdout; without a plan, the
// measurements alone.
void explain_sensitivity(const SensitivityTable& table, const std::optional<BitPlan>& plan);

nlohmann::ordered_json bit_plan_json(const BitPlan& plan);

}  // namespace moepack::cli
