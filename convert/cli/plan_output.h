// What `moepack plan` prints, for people and for machines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "convert/cli/plan_source.h"
#include "runtime/advice/disk_rates.h"
#include "runtime/advice/speed_prediction.h"
#include "runtime/advice/token_work.h"
#include "runtime/advice/verdict.h"
#include "runtime/run_plan.h"

namespace moepack::cli {

// Everything that was found out.
struct PlanReport {
  std::string model;  // as it was named
  PlanSource source;
  EngineOptions options;
  RunPlan plan;
  Advice advice;
  std::optional<std::uint64_t> free_bytes;  // of the source's disk, where it is to be converted
  TokenWork work;
  // Nothing was measured where the plan is refused, or a GPU computes.
  std::optional<ComputeRates> compute;
  ReadRates disk;
  std::optional<DiskMeasurement> disk_measured;  // empty: the rate was given, or is unknown
  std::string disk_unknown;                      // why
  double cache_share = 0;                        // of the pack, 0 … 1
  std::vector<SpeedPrediction> speed;            // by rising hit rate
};

void print_plan(const PlanReport& report);
nlohmann::ordered_json plan_json(const PlanReport& report);

}  // namespace moepack::cli
