// Sensitivities and allocations of bits for people, and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "convert/quantize/bit_plan.h"
#include "convert/quantize/sensitivity_table.h"

namespace moepack::cli {

// Size, predicted loss and what uniform packs would lose, on stderr. `file`: where it was written;
// "" nowhere.
void print_bit_plan(const BitPlan& plan, const std::string& file);

// "predicted KL divergence … nats, uniform packs of this size …".
std::string forecast_text(const AllocationForecast& forecast);

// A forecast whose gain is not worth a mixed pack; "" where it is.
std::string gain_warning(const AllocationForecast& forecast);

// Layers, widths, experts at the extremes, on stdout. Without a plan: the measurements alone.
void explain_sensitivity(const SensitivityTable& table, const std::optional<BitPlan>& plan);

nlohmann::ordered_json bit_plan_json(const BitPlan& plan);

}  // namespace moepack::cli
