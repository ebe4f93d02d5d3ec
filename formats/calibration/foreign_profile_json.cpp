// Profiles of expert use as JSON, told apart by their members.
#include <nlohmann/json.hpp>

#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/calibration/expert_counts.h"
#include "formats/calibration/expert_ids.h"
#include "formats/calibration/foreign_profile.h"

namespace moepack {
namespace {

constexpr std::string_view kPerfSchemas[] = {"llama.cpp.moe_layer_perf.v1",
                                             "llama.cpp.moe_layer_opt_perf.v1"};

// ---- freq-json ----

bool is_freq_json(const nlohmann::json& json) {
  return json.contains("layers") && json["layers"].is_object() && json.contains("tokens");
}

Result<ProfileInput> parse_freq_json(const nlohmann::json& json, const JsonFields& root,
                                     const ExpertShape& known) {
  ProfileInput input;
  input.format = "freq-json";
  input.notes.emplace_back(
      "it has the order of the experts without counts: no coverage can be told");
  ExpertProfile& p = input.profile;
  MOE_ASSIGN_OR_RETURN(p.shape, settle_shape({}, known, root.file()));
  MOE_RETURN_IF_ERROR(check_expert_shape(p.shape, root.file()));
  constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 32;  // an int there
  MOE_ASSIGN_OR_RETURN(p.tokens, root.number("tokens", 0, kMaxTokens));
  MOE_ASSIGN_OR_RETURN(p.experts_per_token, root.number32("K", 1, p.shape.num_experts));
  MOE_ASSIGN_OR_RETURN(const JsonFields layers, root.object("layers"));
  p.layers.resize(p.shape.num_layers);
  for (const auto& [key, list] : json["layers"].items()) {
    const auto layer = parse_index(key, p.shape.num_layers);
    if (!layer.has_value()) {
      return beyond_model(layers, key, key, "layer", p.shape.num_layers);
    }
    MOE_ASSIGN_OR_RETURN(p.layers[*layer].ranks,
                         parse_expert_ids(layers, key, list, p.shape.num_experts));
  }
  return input;
}

// ---- counts-json ----

bool is_counts_json(const nlohmann::json& json) {
  for (const auto& [key, value] : json.items()) {
    if (!parse_index(key, kMaxModelLayers).has_value() || !value.is_object()) return false;
  }
  return !json.empty();
}

Result<ProfileInput> parse_counts_json(const nlohmann::json& json, const JsonFields& root,
                                       const ExpertShape& known) {
  MOE_ASSIGN_OR_RETURN(const ExpertShape shape, settle_shape({}, known, root.file()));
  ExpertCounts counts;
  for (const auto& [key, experts] : json.items()) {
    const std::uint32_t layer = *parse_index(key, kMaxModelLayers);
    if (layer >= shape.num_layers) {
      return beyond_model(root, key, key, "layer", shape.num_layers);
    }
    MOE_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::of(experts, root.file(), key));
    for (const auto& [id, count] : experts.items()) {
      const auto expert = parse_index(id, shape.num_experts);
      if (!expert.has_value()) {
        return beyond_model(fields, id, id, "expert", shape.num_experts);
      }
      if (!count.is_number_unsigned()) return fields.error(id, "must be a number of uses");
      const std::string_view wrong = counts.add(layer, *expert, count.get<std::uint64_t>());
      if (!wrong.empty()) return fields.error(id, wrong);
    }
  }
  ProfileInput input;
  input.format = "counts-json";
  MOE_ASSIGN_OR_RETURN(input.profile, counts.profile(shape, root.file()));
  return input;
}

// ---- the hot cache's perf JSON ----

// Adds member `key` of a layer, a list of [id, count] that may be absent. Equal ids add up, up to
// 2^64 - 1.
Status add_pairs(const JsonFields& layer, const char* key, std::uint32_t index,
                 std::uint32_t num_experts, ExpertCounts& counts) {
  if (!layer.has(key)) return Status::ok();
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, layer.array(key));
  for (std::size_t i = 0; i < list->size(); ++i) {
    const nlohmann::json& pair = (*list)[i];
    const std::string place = std::string(key) + "[" + std::to_string(i) + "]";
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        !pair[1].is_number_unsigned()) {
      return layer.error(place, "must be [expert, count], both integers >= 0");
    }
    const auto id = pair[0].get<std::uint64_t>();
    if (id >= num_experts)
      return beyond_model(layer, place, std::to_string(id), "expert", num_experts);
    const auto count = pair[1].get<std::uint64_t>();
    if (count == 0) continue;
    const std::string_view wrong = counts.add(index, id, count, ExpertCounts::Overflow::kSaturate);
    if (!wrong.empty()) return layer.error(place, wrong);
  }
  return Status::ok();
}

bool has_entries(const JsonFields& layer, const char* key) {
  const nlohmann::json* list = layer.find(key);
  return list != nullptr && !list->empty();
}

Status add_perf_layer(const JsonFields& layer, const ExpertShape& shape, ExpertCounts& counts) {
  MOE_ASSIGN_OR_RETURN(const std::uint64_t index, layer.number("layer"));
  if (index >= shape.num_layers) {
    return beyond_model(layer, "layer", std::to_string(index), "layer", shape.num_layers);
  }
  const auto add = [&](const char* key) {
    return add_pairs(layer, key, static_cast<std::uint32_t>(index), shape.num_experts, counts);
  };
  // What the cache served and what it did not are added up; without the cache there are raw counts.
  if (!has_entries(layer, "hot_experts") && !has_entries(layer, "cold_experts")) {
    return add("experts");
  }
  MOE_RETURN_IF_ERROR(add("hot_experts"));
  return add("cold_experts");
}

Result<ProfileInput> parse_perf_json(const JsonFields& root, const ExpertShape& known) {
  MOE_ASSIGN_OR_RETURN(const std::string schema, root.string("schema"));
  if (schema != kPerfSchemas[0] && schema != kPerfSchemas[1]) {
    return json_error(StatusCode::kUnsupported, root.file(), "schema",
                      "is " + json_quote(printable(schema, 64)) + ", must be \"" +
                          std::string(kPerfSchemas[0]) + "\" or \"" + std::string(kPerfSchemas[1]) +
                          "\"");
  }
  ExpertShape stated;
  if (root.has("n_expert")) {
    MOE_ASSIGN_OR_RETURN(stated.num_experts, root.number32("n_expert", 1, kMaxLayerExperts));
  }
  ProfileInput input;
  input.format = "hot-cache perf JSON";
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* layers, root.array("layers"));
  MOE_ASSIGN_OR_RETURN(const ExpertShape shape, settle_shape(stated, known, root.file()));
  ExpertCounts counts;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    const std::string path = "layers[" + std::to_string(i) + "]";
    MOE_ASSIGN_OR_RETURN(const JsonFields layer, JsonFields::of((*layers)[i], root.file(), path));
    MOE_RETURN_IF_ERROR(add_perf_layer(layer, shape, counts));
  }
  if (counts.is_empty()) {
    return root.error("layers", "holds no counts",
                      "record with perf mode full or update, and without --no-perf");
  }
  MOE_ASSIGN_OR_RETURN(input.profile, counts.profile(shape, root.file()));
  if (root.has("n_expert_used")) {
    MOE_ASSIGN_OR_RETURN(input.profile.experts_per_token,
                         root.number32("n_expert_used", 1, shape.num_experts));
  }
  return input;
}

Result<ProfileInput> parse_own(const nlohmann::json& json, const std::string& file,
                               const ExpertShape& known) {
  ProfileInput input;
  input.format = kExpertProfileFormat;
  MOE_ASSIGN_OR_RETURN(input.profile, parse_expert_profile_tree(json, file));
  MOE_RETURN_IF_ERROR(settle_shape(input.profile.shape, known, file).status());
  return input;
}

// hot_experts.json names experts without saying how often any is used.
Status hot_list_error(const std::string& file) {
  return unsupported(Where{.file = file},
                     "is a list of hot experts, which does not tell how often any is used",
                     "add the profile that it was chosen from, or give the list to moepack tier "
                     "--hot-experts");
}

}  // namespace

Result<ProfileInput> parse_profile_json(std::string_view text, const std::string& file,
                                        const ExpertShape& known) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return no_profile_error(file);
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  if (root.has("format")) return parse_own(json, file, known);
  if (root.has("schema")) return parse_perf_json(root, known);
  if (is_freq_json(json)) return parse_freq_json(json, root, known);
  if (is_counts_json(json)) return parse_counts_json(json, root, known);
  if (root.has("hot_experts")) return hot_list_error(file);
  return no_profile_error(file);
}

}  // namespace moepack
