#include "convert/cli/timing_output.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

namespace moepack::cli {
namespace {

constexpr int kNameWidth = 14;
constexpr int kLeastWidth = 8;
constexpr int kPercentWidth = 5;

double milliseconds(double seconds, std::uint64_t tokens) {
  return tokens == 0 ? 0.0 : 1e3 * seconds / static_cast<double>(tokens);
}

int width_of(const TimedPart& part) {
  return std::max(kLeastWidth, static_cast<int>(part.name.size()));
}

// `seconds`: of the part, in this line.
template <typename SecondsOf>
void add_line(std::ostringstream& out, std::string_view name, std::span<const TimedPart> parts,
              const SecondsOf& seconds_of) {
  out << "| " << std::left << std::setw(kNameWidth) << name << std::right;
  for (const TimedPart& part : parts) {
    const double seconds = seconds_of(part.stages);
    const double total = part.stages.total();
    out << " | " << std::setprecision(4) << std::setw(width_of(part))
        << milliseconds(seconds, part.tokens) << " | " << std::setprecision(1)
        << std::setw(kPercentWidth) << (total > 0 ? 100 * seconds / total : 0.0);
  }
  out << " |\n";
}

}  // namespace

std::string timing_table(std::span<const TimedPart> parts) {
  std::ostringstream out;
  out << std::fixed << "| " << std::left << std::setw(kNameWidth) << "ms per token" << std::right;
  for (const TimedPart& part : parts) {
    out << " | " << std::setw(width_of(part)) << part.name << " | " << std::setw(kPercentWidth)
        << "%";
  }
  out << " |\n| " << std::string(kNameWidth, '-');
  for (const TimedPart& part : parts) {
    out << " | " << std::string(static_cast<std::size_t>(width_of(part)) - 1, '-') << ": | "
        << std::string(kPercentWidth - 1, '-') << ":";
  }
  out << " |\n";
  for (const Stage stage : all_stages()) {
    add_line(out, stage_name(stage), parts,
             [stage](const StageSeconds& stages) { return stages.of(stage); });
  }
  add_line(out, "total", parts, [](const StageSeconds& stages) { return stages.total(); });
  return out.str();
}

nlohmann::ordered_json stages_json(const StageSeconds& stages, std::uint64_t tokens) {
  nlohmann::ordered_json json;
  for (const Stage stage : all_stages()) {
    json[std::string(stage_name(stage))] = milliseconds(stages.of(stage), tokens);
  }
  json["total"] = milliseconds(stages.total(), tokens);
  return json;
}

std::string device_table(const DeviceReport& report) {
  std::vector<std::pair<std::string, KernelTime>> kernels(report.kernels.begin(),
                                                          report.kernels.end());
  std::sort(kernels.begin(), kernels.end(),
            [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double total = 0;
  for (const auto& [name, time] : kernels) total += time.seconds;
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << "| us a run |     runs |     % | kernels |\n"
      << "| -------: | -------: | ----: | ------- |\n";
  for (const auto& [name, time] : kernels) {
    out << "| " << std::setw(8) << 1e6 * time.seconds / static_cast<double>(time.runs) << " | "
        << std::setw(8) << time.runs << " | " << std::setw(5)
        << (total > 0 ? 100 * time.seconds / total : 0.0) << " | " << name << " |\n";
  }
  const auto batches = static_cast<double>(std::max<std::uint64_t>(report.work.batches, 1));
  out << "submissions a batch " << static_cast<double>(report.work.submissions) / batches
      << ", dispatches " << static_cast<double>(report.work.dispatches) / batches << ", barriers "
      << static_cast<double>(report.work.barriers) / batches << "\n";
  return out.str();
}

std::string lanes_text(const LaneTimes& lanes) {
  if (lanes.hits + lanes.misses == 0) return "";
  const auto uses = static_cast<double>(lanes.hits + lanes.misses);
  const auto layers = static_cast<double>(std::max<std::uint64_t>(lanes.joined_layers, 1));
  const auto micros = [&](double seconds) { return 1e6 * seconds / layers; };
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << "lanes: " << lanes.hits << " uses of experts on the "
      << "GPU, " << lanes.misses << " on the processor ("
      << 100 * static_cast<double>(lanes.hits) / uses << " % hot); " << lanes.joined_layers
      << " layers in both lanes, " << lanes.hot_layers << " on the GPU alone; us a layer: hot "
      << micros(lanes.hot_seconds) << ", cold " << micros(lanes.cold_seconds) << ", both "
      << micros(lanes.both_seconds) << ", overlap " << micros(lanes.overlap_seconds())
      << ", join wait " << micros(lanes.join_wait_seconds) << "\n";
  return out.str();
}

nlohmann::ordered_json lanes_json(const LaneTimes& lanes, const std::optional<LaneUse>& use) {
  if (lanes.hits + lanes.misses == 0) return nullptr;
  const auto uses = static_cast<double>(lanes.hits + lanes.misses);
  nlohmann::ordered_json json{{"hot_slots", lanes.hits},
                              {"cold_slots", lanes.misses},
                              {"hot_slot_ratio", static_cast<double>(lanes.hits) / uses},
                              {"joined_layers", lanes.joined_layers},
                              {"hot_layers", lanes.hot_layers},
                              {"hot_seconds", lanes.hot_seconds},
                              {"cold_seconds", lanes.cold_seconds},
                              {"both_seconds", lanes.both_seconds},
                              {"overlap_seconds", lanes.overlap_seconds()},
                              {"join_wait_seconds", lanes.join_wait_seconds}};
  if (!use.has_value()) return json;
  nlohmann::ordered_json reasons = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kNumLaneFallbacks; ++i) {
    reasons[std::string(lane_fallback_name(static_cast<LaneFallback>(i)))] = use->fallbacks[i];
  }
  json["fallback_reasons"] = std::move(reasons);
  return json;
}

}  // namespace moepack::cli
