#include "runtime/placement/lane_report.h"

#include <nlohmann/json.hpp>

namespace moepack {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLaneSchema = "llama.cpp.moe_layer_opt_perf.v1";

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

Json pairs_of(const std::vector<std::uint64_t>& counts) {
  Json pairs = Json::array();
  for (std::size_t e = 0; e < counts.size(); ++e) {
    if (counts[e] != 0) pairs.push_back({e, counts[e]});
  }
  return pairs;
}

// Adds slots and times of `layer`, which may be the sum of all.
void add_lanes(const LayerLanes& layer, std::uint64_t hot, std::uint64_t cold, Json& out) {
  const auto calls = static_cast<double>(layer.calls);
  const auto slots = static_cast<double>(hot + cold);
  out["hot_slots_total"] = hot;
  out["cold_slots_total"] = cold;
  out["hot_slots_per_call"] = ratio(static_cast<double>(hot), calls);
  out["cold_slots_per_call"] = ratio(static_cast<double>(cold), calls);
  out["hot_slot_ratio"] = ratio(static_cast<double>(hot), slots);
  out["parallel_hot_lane_wall_time_per_call_us"] = ratio(layer.times.hot, calls);
  out["parallel_cold_lane_wall_time_per_call_us"] = ratio(layer.times.cold, calls);
  out["parallel_join_wait_time_per_call_us"] = ratio(layer.times.join_wait, calls);
  out["total_moe_time_per_call_us"] = ratio(layer.times.total, calls);
}

Json layer_report(std::size_t index, const LayerLanes& layer) {
  Json out{{"layer", index}, {"calls", layer.calls}};
  add_lanes(layer, layer.hot_uses(), layer.cold_uses(), out);
  out["hot_experts"] = pairs_of(layer.hot);
  out["cold_experts"] = pairs_of(layer.cold);
  return out;
}

Json summary_of(const LaneUse& use) {
  LayerLanes sum;
  std::uint64_t hot = 0;
  std::uint64_t cold = 0;
  for (const LayerLanes& layer : use.layers) {
    sum.calls += layer.calls;
    hot += layer.hot_uses();
    cold += layer.cold_uses();
    sum.times.hot += layer.times.hot;
    sum.times.cold += layer.times.cold;
    sum.times.join_wait += layer.times.join_wait;
    sum.times.total += layer.times.total;
  }
  Json out{{"layer_calls", sum.calls}};
  add_lanes(sum, hot, cold, out);
  Json reasons = Json::object();
  std::uint64_t fallbacks = 0;
  for (std::size_t i = 0; i < kNumLaneFallbacks; ++i) {
    reasons[std::string(lane_fallback_name(static_cast<LaneFallback>(i)))] = use.fallbacks[i];
    fallbacks += use.fallbacks[i];
  }
  out["parallel_fallbacks"] = fallbacks;
  out["parallel_fallback_reasons"] = std::move(reasons);
  return out;
}

}  // namespace

std::string lane_report_text(const LaneUse& use) {
  std::uint64_t updates = 0;
  Json layers = Json::array();
  for (std::size_t l = 0; l < use.layers.size(); ++l) {
    updates += use.layers[l].calls;
    if (use.layers[l].calls != 0) layers.push_back(layer_report(l, use.layers[l]));
  }
  const Json report{{"enabled", true},
                    {"mode", "full"},
                    {"schema", kLaneSchema},
                    {"engine", "moepack"},
                    {"n_expert", use.shape.num_experts},
                    {"n_expert_used", use.experts_per_token},
                    {"updates", updates},
                    {"overflow_resets", 0},
                    {"summary", summary_of(use)},
                    {"layers", std::move(layers)}};
  return report.dump(1) + "\n";
}

std::string no_lane_report_text() {
  const Json report{
      {"enabled", false}, {"mode", "off"}, {"schema", kLaneSchema}, {"layers", Json::array()}};
  return report.dump() + "\n";
}

}  // namespace moepack
