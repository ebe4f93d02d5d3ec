// How `inspect` shows the quality ledger of a pack.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "convert/report/quality_summary.h"

namespace moepack::cli {

nlohmann::ordered_json quality_json(const QualitySummary& quality);
// Prints it on stdout, indented by two.
void print_quality(const QualitySummary& quality);

}  // namespace moepack::cli
