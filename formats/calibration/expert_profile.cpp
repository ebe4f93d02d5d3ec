#include "formats/calibration/expert_profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/limits.h"
#include "formats/calibration/expert_ids.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 48;

template <typename T, typename ToText>
std::string list_text(const std::vector<T>& values, ToText to_text) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += to_text(values[i]);
  }
  return text + "]";
}

std::string layer_text(const LayerProfile& layer) {
  const auto integer = [](std::uint64_t value) { return std::to_string(value); };
  if (layer.counts.empty()) return "{\"ranks\": " + list_text(layer.ranks, integer) + "}";
  std::string text = "{\"counts\": " + list_text(layer.counts, integer);
  if (!layer.weight_sums.empty()) {
    text += ",\n     \"weight_sums\": " + list_text(layer.weight_sums, json_number);
    text += ",\n     \"weight_square_sums\": " + list_text(layer.weight_square_sums, json_number);
  }
  return text + "}";
}

Status check_head(const JsonFields& root) {
  const char* remedy = "give a file written by moepack profile";
  if (!root.has("format")) {
    return root.error("format", "is missing; this is no profile of moepack", remedy);
  }
  MOE_ASSIGN_OR_RETURN(const std::string format, root.string("format"));
  if (format != kExpertProfileFormat) {
    return root.error(
        "format",
        "is " + json_quote(printable(format, 64)) + ", must be \"" + kExpertProfileFormat + "\"",
        remedy);
  }
  return root.expect_version(kExpertProfileVersion,
                             "use the moepack that wrote it or profile again");
}

// Reads member `key`, which must be [num_experts] numbers that `take` accepts. `take` is told index
// and node, and returns what is wrong, or "".
template <typename Take>
Status parse_list(const JsonFields& fields, std::string_view key, std::uint32_t num_experts,
                  const Take& take) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, fields.array(key));
  if (list->size() != num_experts) {
    return fields.error(key, "has " + std::to_string(list->size()) + " numbers, num_experts is " +
                                 std::to_string(num_experts));
  }
  for (std::size_t e = 0; e < list->size(); ++e) {
    const std::string_view wrong = take(e, (*list)[e]);
    if (!wrong.empty()) {
      return fields.error(std::string(key) + "[" + std::to_string(e) + "]", wrong);
    }
  }
  return Status::ok();
}

// Reads a layer of `profile`, whose shape, tokens and experts_per_token are set.
Status parse_counts(const JsonFields& fields, const ExpertProfile& profile, LayerProfile& layer) {
  const bool tokens_known = profile.tokens != 0;
  std::uint64_t uses = 0;
  const auto take = [&](std::size_t, const nlohmann::json& node) -> std::string_view {
    if (!node.is_number_unsigned()) return "must be a number of tokens";
    const auto count = node.get<std::uint64_t>();
    if (tokens_known && count > profile.tokens) return "is more than the number of tokens";
    const auto sum = checked_add(uses, count);
    if (!sum.has_value()) return "makes the layer's uses exceed 64 bits";
    uses = *sum;
    layer.counts.push_back(count);
    return {};
  };
  MOE_RETURN_IF_ERROR(parse_list(fields, "counts", profile.shape.num_experts, take));
  const std::uint64_t expected = profile.tokens * profile.experts_per_token;  // < 2^64
  // A layer without experts has no uses.
  if (!tokens_known || uses == expected || uses == 0) return Status::ok();
  return fields.error("counts", "add up to " + std::to_string(uses) + ", but " +
                                    std::to_string(profile.tokens) + " tokens times " +
                                    std::to_string(profile.experts_per_token) + " experts are " +
                                    std::to_string(expected));
}

Status parse_weights(const JsonFields& fields, std::string_view key, const LayerProfile& layer,
                     std::vector<double>& values) {
  const auto take = [&](std::size_t e, const nlohmann::json& node) -> std::string_view {
    const double value = node.is_number() ? node.get<double>() : -1;
    if (!std::isfinite(value) || value < 0) return "must be a finite number >= 0";
    if (layer.counts[e] == 0 && value != 0) return "belongs to an expert without uses";
    values.push_back(value);
    return {};
  };
  return parse_list(fields, key, static_cast<std::uint32_t>(layer.counts.size()), take);
}

Status parse_ranks(const JsonFields& fields, std::uint32_t num_experts, LayerProfile& layer) {
  MOE_RETURN_IF_ERROR(fields.allow_only({"ranks"}));
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* list, fields.array("ranks"));
  MOE_ASSIGN_OR_RETURN(layer.ranks, parse_expert_ids(fields, "ranks", *list, num_experts));
  return Status::ok();
}

Status parse_layers(const JsonFields& root, ExpertProfile& profile) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json* layers, root.array("layers"));
  if (layers->size() != profile.shape.num_layers) {
    return root.error("layers", "has " + std::to_string(layers->size()) +
                                    " entries, num_layers is " +
                                    std::to_string(profile.shape.num_layers));
  }
  bool by_rank = false;
  bool weighted = false;
  for (std::size_t i = 0; i < layers->size(); ++i) {
    MOE_ASSIGN_OR_RETURN(
        const JsonFields fields,
        JsonFields::of((*layers)[i], root.file(), "layers[" + std::to_string(i) + "]"));
    if (i == 0) {
      by_rank = fields.has("ranks");
      weighted = fields.has("weight_sums");
    }
    LayerProfile layer;
    if (by_rank) {
      MOE_RETURN_IF_ERROR(parse_ranks(fields, profile.shape.num_experts, layer));
      profile.layers.push_back(std::move(layer));
      continue;
    }
    MOE_RETURN_IF_ERROR(parse_counts(fields, profile, layer));
    if (weighted) {
      MOE_RETURN_IF_ERROR(fields.allow_only({"counts", "weight_sums", "weight_square_sums"}));
      MOE_RETURN_IF_ERROR(parse_weights(fields, "weight_sums", layer, layer.weight_sums));
      MOE_RETURN_IF_ERROR(
          parse_weights(fields, "weight_square_sums", layer, layer.weight_square_sums));
    } else {
      MOE_RETURN_IF_ERROR(fields.allow_only({"counts"}));
    }
    profile.layers.push_back(std::move(layer));
  }
  return Status::ok();
}

Status add_layer(const LayerProfile& other, bool weighted, std::uint32_t index,
                 LayerProfile& layer) {
  const auto uses = checked_add(layer_uses(layer), layer_uses(other));
  if (!uses.has_value()) {
    return invalid_argument("layer " + std::to_string(index) +
                            ": the sum of the profiles' uses exceeds 64 bits");
  }
  for (std::size_t e = 0; e < layer.counts.size(); ++e) layer.counts[e] += other.counts[e];
  if (!weighted) {
    layer.weight_sums.clear();
    layer.weight_square_sums.clear();
    return Status::ok();
  }
  for (std::size_t e = 0; e < layer.counts.size(); ++e) {
    layer.weight_sums[e] += other.weight_sums[e];
    layer.weight_square_sums[e] += other.weight_square_sums[e];
    if (std::isfinite(layer.weight_sums[e]) && std::isfinite(layer.weight_square_sums[e])) continue;
    return invalid_argument("layer " + std::to_string(index) + ", expert " + std::to_string(e) +
                            ": the sum of the profiles' weights is not finite");
  }
  return Status::ok();
}

}  // namespace

std::string to_string(const ExpertShape& shape) {
  return std::to_string(shape.num_layers) + " layers of " + std::to_string(shape.num_experts) +
         " experts";
}

Status check_expert_shape(const ExpertShape& shape, std::string_view file) {
  const std::uint64_t experts = std::uint64_t{shape.num_layers} * shape.num_experts;
  if (shape.is_known() && shape.num_layers <= kMaxModelLayers &&
      shape.num_experts <= kMaxLayerExperts && experts <= kMaxModelExperts) {
    return Status::ok();
  }
  return corrupt(Where{.file = file}, to_string(shape) + " are no model's",
                 "use a profile or a list of a real model");
}

bool ExpertProfile::has_counts() const {
  return std::all_of(layers.begin(), layers.end(),
                     [](const LayerProfile& layer) { return !layer.counts.empty(); });
}

bool ExpertProfile::has_weights() const {
  return std::all_of(layers.begin(), layers.end(),
                     [](const LayerProfile& layer) { return !layer.weight_sums.empty(); });
}

std::uint64_t layer_uses(const LayerProfile& layer) {
  return std::accumulate(layer.counts.begin(), layer.counts.end(), std::uint64_t{0});
}

std::vector<std::uint32_t> used_experts(const LayerProfile& layer) {
  if (layer.counts.empty()) return layer.ranks;
  std::vector<std::uint32_t> ids;
  for (std::size_t e = 0; e < layer.counts.size(); ++e) {
    if (layer.counts[e] > 0) ids.push_back(static_cast<std::uint32_t>(e));
  }
  std::stable_sort(ids.begin(), ids.end(), [&](std::uint32_t a, std::uint32_t b) {
    return layer.counts[a] > layer.counts[b];
  });
  return ids;
}

std::string expert_profile_text(const ExpertProfile& p) {
  std::string text = std::string("{\n  \"format\": \"") + kExpertProfileFormat + "\",\n";
  const auto number = [&](const char* key, std::uint64_t value) {
    text += "  \"" + std::string(key) + "\": " + std::to_string(value) + ",\n";
  };
  number("format_version", kExpertProfileVersion);
  text += "  \"model\": " + json_quote(p.model) + ",\n";
  text += "  \"source_fingerprint\": " + json_quote(checksum_text(p.source_fingerprint)) + ",\n";
  number("num_layers", p.shape.num_layers);
  number("num_experts", p.shape.num_experts);
  number("experts_per_token", p.experts_per_token);
  number("tokens", p.tokens);
  text += "  \"layers\": [";
  std::string_view separator = "\n    ";
  for (const LayerProfile& layer : p.layers) {
    text += separator;
    text += layer_text(layer);
    separator = ",\n    ";
  }
  return text + "\n  ]\n}\n";
}

Result<ExpertProfile> parse_expert_profile(std::string_view text, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(text, Where{.file = file}));
  return parse_expert_profile_tree(json, file);
}

Result<ExpertProfile> parse_expert_profile_tree(const nlohmann::json& json,
                                                const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const JsonFields root, JsonFields::of(json, file));
  MOE_RETURN_IF_ERROR(check_head(root));
  MOE_RETURN_IF_ERROR(
      root.allow_only({"format", "format_version", "model", "source_fingerprint", "num_layers",
                       "num_experts", "experts_per_token", "tokens", "layers"}));
  ExpertProfile p;
  MOE_ASSIGN_OR_RETURN(p.model, root.string("model"));
  MOE_ASSIGN_OR_RETURN(p.source_fingerprint, root.checksum("source_fingerprint"));
  MOE_ASSIGN_OR_RETURN(p.shape.num_layers, root.number32("num_layers", 1));
  MOE_ASSIGN_OR_RETURN(p.shape.num_experts, root.number32("num_experts", 1));
  MOE_RETURN_IF_ERROR(check_expert_shape(p.shape, file));
  MOE_ASSIGN_OR_RETURN(p.experts_per_token,
                       root.number32("experts_per_token", 0, p.shape.num_experts));
  MOE_ASSIGN_OR_RETURN(p.tokens, root.number("tokens", 0, kMaxTokens - 1));
  if (p.tokens != 0 && p.experts_per_token == 0) {
    return root.error("tokens", "is known, but experts_per_token is not");
  }
  MOE_RETURN_IF_ERROR(parse_layers(root, p));
  return p;
}

Status check_same_model(const ExpertProfile& a, const ExpertProfile& b) {
  if (a.shape != b.shape) {
    return invalid_argument("the profiles are of different models: " + to_string(a.shape) +
                            " and " + to_string(b.shape));
  }
  const auto differ = [](std::uint64_t x, std::uint64_t y) { return x != 0 && y != 0 && x != y; };
  if (differ(a.experts_per_token, b.experts_per_token)) {
    return invalid_argument(
        "the profiles are of different models: " + std::to_string(a.experts_per_token) + " and " +
        std::to_string(b.experts_per_token) + " experts a token");
  }
  const bool same_source =
      a.source_fingerprint != 0 && a.source_fingerprint == b.source_fingerprint;
  if (a.model.empty() || b.model.empty() || a.model == b.model || same_source) return Status::ok();
  return invalid_argument(
      "the profiles are of different models: " + printable(a.model) + " and " + printable(b.model),
      "if they are one model under two names, make \"model\" the same in both");
}

Result<ExpertProfile> add_profiles(const ExpertProfile& a, const ExpertProfile& b) {
  if (!a.has_counts() || !b.has_counts()) {
    return Status(StatusCode::kUnsupported,
                  "ranks without counts cannot be added to another profile; give it alone, or one "
                  "with counts");
  }
  MOE_RETURN_IF_ERROR(check_same_model(a, b));
  ExpertProfile sum = a;
  if (sum.model.empty()) sum.model = b.model;
  if (sum.source_fingerprint != b.source_fingerprint) {
    if (sum.source_fingerprint == 0)
      sum.source_fingerprint = b.source_fingerprint;
    else if (b.source_fingerprint != 0)
      sum.source_fingerprint = 0;
  }
  if (sum.experts_per_token == 0) sum.experts_per_token = b.experts_per_token;
  sum.tokens = a.tokens != 0 && b.tokens != 0 ? a.tokens + b.tokens : 0;
  if (sum.tokens >= kMaxTokens) {
    return invalid_argument("the profiles together have more tokens than a profile can");
  }
  const bool weighted = a.has_weights() && b.has_weights();
  for (std::uint32_t i = 0; i < sum.shape.num_layers; ++i) {
    MOE_RETURN_IF_ERROR(add_layer(b.layers[i], weighted, i, sum.layers[i]));
  }
  return sum;
}

}  // namespace moepack
