#include "formats/calibration/hot_experts.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/calibration/expert_ids.h"

namespace moepack {
namespace {

// The dimension `key` as the file states it, or else `expected`; 0 stands for unknown.
Result<std::uint32_t> dimension(const JsonFields& root, const char* key, std::uint32_t expected) {
  if (!root.has(key)) {
    if (expected != 0) return expected;
    return root.error(key, "is missing", "name the model that the list is for");
  }
  MOE_ASSIGN_OR_RETURN(const std::uint32_t stated, root.number32(key, 1));
  if (expected == 0 || stated == expected) return stated;
  return root.error(key,
                    "is " + std::to_string(stated) + ", the model has " + std::to_string(expected),
                    "the list is of another model");
}

Status parse_lists(const JsonFields& root, HotExperts& hot) {
  MOE_ASSIGN_OR_RETURN(const JsonFields lists, root.object("hot_experts"));
  for (const auto& [key, list] : root.find("hot_experts")->items()) {
    const auto layer = parse_index(key, hot.shape.num_layers);
    if (!layer.has_value()) {
      return beyond_model(lists, key, key, "layer", hot.shape.num_layers);
    }
    MOE_ASSIGN_OR_RETURN(hot.layers[*layer],
                         parse_expert_ids(lists, key, list, hot.shape.num_experts));
  }
  return Status::ok();
}

// Checks what the file says about itself, under the names of either tool.
Status check_totals(const JsonFields& root, const HotExperts& hot) {
  const std::uint64_t total = hot.total_hot();
  const std::uint64_t all = std::uint64_t{hot.shape.num_layers} * hot.shape.num_experts;
  for (const char* key : {"total_hot", "num_hot_total"}) {
    if (root.has(key)) MOE_RETURN_IF_ERROR(root.expect_number(key, total, "the sum of the lists"));
  }
  for (const char* key : {"total_cold", "num_cold_total"}) {
    if (root.has(key)) {
      MOE_RETURN_IF_ERROR(root.expect_number(key, all - total, "what the lists leave"));
    }
  }
  return Status::ok();
}

Status parse_threshold(const JsonFields& root, HotExperts& hot) {
  const nlohmann::json* threshold = root.find("threshold");
  if (threshold == nullptr || threshold->is_null()) return Status::ok();
  const double value = threshold->is_number() ? threshold->get<double>() : -1;
  if (!(value >= 0 && value <= 1)) return root.error("threshold", "must be a number from 0 to 1");
  hot.threshold = value;
  return Status::ok();
}

HotExperts empty_lists(const ExpertProfile& profile) {
  HotExperts hot;
  hot.shape = profile.shape;
  hot.layers.resize(profile.shape.num_layers);
  return hot;
}

}  // namespace

std::uint64_t HotExperts::total_hot() const {
  std::uint64_t total = 0;
  for (const auto& ids : layers) total += ids.size();
  return total;
}

std::vector<std::uint32_t> experts_covering(const LayerProfile& layer, double threshold) {
  std::vector<std::uint32_t> ids;
  if (layer.counts.empty()) return ids;
  const auto uses = static_cast<double>(layer_uses(layer));
  std::uint64_t covered = 0;
  for (const std::uint32_t id : used_experts(layer)) {
    covered += layer.counts[id];
    ids.push_back(id);
    if (static_cast<double>(covered) / uses >= threshold) break;
  }
  return ids;
}

Result<HotExperts> select_hot_by_coverage(const ExpertProfile& profile, double threshold) {
  if (!(threshold > 0 && threshold <= 1)) {
    return invalid_argument("a coverage must lie above 0 and not above 1");
  }
  if (!profile.has_counts()) {
    return Status(StatusCode::kUnsupported,
                  "the profile has ranks without counts, which tell no coverage; choose a number "
                  "of experts, or use a profile with counts");
  }
  HotExperts hot = empty_lists(profile);
  hot.threshold = threshold;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    hot.layers[i] = experts_covering(profile.layers[i], threshold);
  }
  return hot;
}

Result<HotExperts> select_hot_by_number(const ExpertProfile& profile, std::uint32_t count) {
  if (count == 0 || count > profile.shape.num_experts) {
    return invalid_argument("the number of hot experts must lie in 1 to " +
                            std::to_string(profile.shape.num_experts));
  }
  HotExperts hot = empty_lists(profile);
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    hot.layers[i] = used_experts(profile.layers[i]);
    if (hot.layers[i].size() > count) hot.layers[i].resize(count);
  }
  return hot;
}

std::string hot_experts_text(const HotExperts& hot) {
  const std::uint64_t all = std::uint64_t{hot.shape.num_layers} * hot.shape.num_experts;
  const std::uint64_t total = hot.total_hot();
  std::string text = "{\n  \"threshold\": ";
  text += hot.threshold.has_value() ? json_number(*hot.threshold) : "null";
  text += ",\n  \"num_layers\": " + std::to_string(hot.shape.num_layers);
  text += ",\n  \"num_experts\": " + std::to_string(hot.shape.num_experts);
  text += ",\n  \"total_hot\": " + std::to_string(total);
  text += ",\n  \"total_cold\": " + std::to_string(all - total);
  if (hot.heuristic) text += ",\n  \"heuristic\": true";
  text += ",\n  \"hot_experts\": {";
  for (std::size_t i = 0; i < hot.layers.size(); ++i) {
    text += (i == 0 ? "\n    \"" : ",\n    \"") + std::to_string(i) + "\": [";
    for (std::size_t k = 0; k < hot.layers[i].size(); ++k) {
      if (k > 0) text += ", ";
      text += std::to_string(hot.layers[i][k]);
    }
    text += "]";
  }
  return text + "\n  }\n}\n";
}

Result<HotExperts> parse_hot_experts(std::string_view text, const std::string& file,
                                     const ExpertShape& expected) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  if (!root.has("hot_experts")) {
    return root.error("hot_experts", "is missing; this is no list of hot experts",
                      "give a hot_experts.json");
  }
  HotExperts hot;
  MOE_ASSIGN_OR_RETURN(hot.shape.num_layers, dimension(root, "num_layers", expected.num_layers));
  MOE_ASSIGN_OR_RETURN(hot.shape.num_experts, dimension(root, "num_experts", expected.num_experts));
  MOE_RETURN_IF_ERROR(check_expert_shape(hot.shape, file));
  if (const nlohmann::json* heuristic = root.find("heuristic")) {
    if (!heuristic->is_boolean()) return root.error("heuristic", "must be true or false");
    hot.heuristic = heuristic->get<bool>();
  }
  MOE_RETURN_IF_ERROR(parse_threshold(root, hot));
  hot.layers.resize(hot.shape.num_layers);
  MOE_RETURN_IF_ERROR(parse_lists(root, hot));
  MOE_RETURN_IF_ERROR(check_totals(root, hot));
  return hot;
}

Result<HotExperts> read_hot_experts(const std::filesystem::path& path,
                                    const ExpertShape& expected) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxProfileBytes));
  return parse_hot_experts(text, path.string(), expected);
}

}  // namespace moepack
