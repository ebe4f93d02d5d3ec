// Rotary embedding in a config.json: read_rope of config_parts.h.
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/config/config_parts.h"

namespace moepack {
namespace {

// Frequencies are powers of 1/theta: at 1 or below they would not fall. Published values end at
// 1e8.
constexpr double kMaxRopeTheta = 1e15;
// Of the numbers of YaRN, of which published ones lie between 0.7 and 128.
constexpr double kMinYarn = 1e-6;
constexpr double kMaxYarn = 1e6;

// One number that may stand in several objects. Those that state it must agree.
Result<double> agreed_number(const std::vector<ConfigReader>& places, std::string_view key,
                             double fallback) {
  std::optional<double> agreed;
  for (const ConfigReader& place : places) {
    MOE_ASSIGN_OR_RETURN(const auto value, place.optional_number(key));
    if (!value.has_value()) continue;
    if (agreed.has_value() && *agreed != *value) {
      return place.error(key, "is " + ConfigReader::shown(*place.find(key)) +
                                  ", but stands with another value elsewhere in the file");
    }
    agreed = value;
  }
  return agreed.value_or(fallback);
}

// The factor of attention for a stretching by `factor`: arXiv 2309.00071, equation 22.
double yarn_magnitude(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

// attention_factor and softmax_factor, of which mscale and mscale_all_dim decide.
Status read_yarn_factors(const ConfigReader& place, const RopeDefaults& defaults, YarnSpec& yarn) {
  MOE_ASSIGN_OR_RETURN(const double mscale, place.number_in("mscale", 0, 0, kMaxYarn));
  MOE_ASSIGN_OR_RETURN(const double all, place.number_in("mscale_all_dim", 0, 0, kMaxYarn));
  const double usual = mscale != 0 && all != 0
                           ? yarn_magnitude(yarn.factor, mscale) / yarn_magnitude(yarn.factor, all)
                           : yarn_magnitude(yarn.factor, 1);
  MOE_ASSIGN_OR_RETURN(yarn.attention_factor,
                       place.number_in("attention_factor", usual, kMinYarn, kMaxYarn));
  const double softmax = yarn_magnitude(yarn.factor, all);
  if (defaults.scales_softmax && all != 0) yarn.softmax_factor = softmax * softmax;
  return Status::ok();
}

Result<YarnSpec> read_yarn(const ConfigReader& place, const RopeDefaults& defaults,
                           const ModelConfig& model) {
  YarnSpec yarn;
  MOE_ASSIGN_OR_RETURN(yarn.factor, place.number_in("factor", 1, 1, kMaxYarn));
  MOE_ASSIGN_OR_RETURN(yarn.beta_fast,
                       place.number_in("beta_fast", yarn.beta_fast, kMinYarn, kMaxYarn));
  MOE_ASSIGN_OR_RETURN(yarn.beta_slow,
                       place.number_in("beta_slow", yarn.beta_slow, kMinYarn, kMaxYarn));
  MOE_RETURN_IF_ERROR(place.dimension("original_max_position_embeddings",
                                      model.max_position_embeddings, yarn.original_positions,
                                      kMaxStatedPositions));
  MOE_ASSIGN_OR_RETURN(const auto truncate, place.optional_flag("truncate"));
  yarn.truncate = truncate.value_or(true);
  MOE_RETURN_IF_ERROR(read_yarn_factors(place, defaults, yarn));
  return yarn;
}

// "default" or "yarn"; the key is rope_type, or type in older files.
Result<bool> is_yarn(const ConfigReader& place, const RopeDefaults& defaults) {
  bool yarn = false;
  for (const std::string_view key : {"rope_type", "type"}) {
    MOE_ASSIGN_OR_RETURN(const auto type, place.optional_text(key));
    if (!type.has_value() || *type == "default") continue;
    if (!defaults.has_yarn || *type != "yarn") {
      return place.unsupported_value(key, ConfigReader::shown(*place.find(key)));
    }
    yarn = true;
  }
  return yarn;
}

// Both objects of an older and a newer form may stand in one file.
Status read_scaling(const std::vector<ConfigReader>& places, const RopeDefaults& defaults,
                    ModelConfig& model) {
  for (const ConfigReader& place : places) {
    MOE_ASSIGN_OR_RETURN(const bool yarn, is_yarn(place, defaults));
    if (!yarn) continue;
    MOE_ASSIGN_OR_RETURN(const YarnSpec spec, read_yarn(place, defaults, model));
    if (model.yarn.has_value() && !(*model.yarn == spec)) {
      return place.error("factor", "and what stands beside it differ from what stands elsewhere");
    }
    model.yarn = spec;
  }
  return Status::ok();
}

// rotary_dim, of which some files state the size and others the share.
Status read_rotary_dim(const ConfigReader& text, const std::vector<ConfigReader>& places,
                       const RopeDefaults& defaults, ModelConfig& model) {
  const std::uint32_t width = defaults.width == 0 ? model.head_dim : defaults.width;
  if (!defaults.rotary_key.empty() && text.has(defaults.rotary_key)) {
    MOE_RETURN_IF_ERROR(text.dimension(defaults.rotary_key, width, model.rotary_dim, width));
    if (model.rotary_dim % 2 == 0) return Status::ok();
    return text.error(defaults.rotary_key,
                      "is " + std::to_string(model.rotary_dim) + "; dimensions must form pairs");
  }
  constexpr std::string_view kFactor = "partial_rotary_factor";
  MOE_ASSIGN_OR_RETURN(const double factor,
                       agreed_number(places, kFactor, defaults.partial_rotary_factor));
  if (!(factor > 0 && factor <= 1)) {
    return text.error(kFactor, "is " + std::to_string(factor) + ", not above 0 and up to 1");
  }
  model.rotary_dim = static_cast<std::uint32_t>(static_cast<double>(width) * factor);
  if (model.rotary_dim == 0 || model.rotary_dim % 2 != 0) {
    return text.error(kFactor, "makes " + std::to_string(model.rotary_dim) + " of " +
                                   std::to_string(width) +
                                   " dimensions rotate; they must form pairs");
  }
  return Status::ok();
}

Result<double> checked_theta(const ConfigReader& place, double theta) {
  if (theta > 1 && theta <= kMaxRopeTheta) return theta;
  return place.error("rope_theta",
                     "is " + std::to_string(theta) + ", not a number above 1 and up to 1e15");
}

}  // namespace

Result<double> read_rope_theta(const ConfigReader& place, double fallback) {
  MOE_ASSIGN_OR_RETURN(const auto theta, place.optional_number("rope_theta"));
  return checked_theta(place, theta.value_or(fallback));
}

Status read_rope(const ConfigReader& text, const RopeDefaults& defaults, ModelConfig& model) {
  std::vector<ConfigReader> places;
  for (std::string_view key : {"rope_parameters", "rope_scaling"}) {
    MOE_ASSIGN_OR_RETURN(const auto place, text.object(key));
    if (place.has_value()) places.push_back(*place);
  }
  MOE_RETURN_IF_ERROR(read_scaling(places, defaults, model));
  places.push_back(text);

  MOE_ASSIGN_OR_RETURN(const double theta, agreed_number(places, "rope_theta", defaults.theta));
  MOE_ASSIGN_OR_RETURN(model.rope_theta, checked_theta(text, theta));
  return read_rotary_dim(text, places, defaults, model);
}

}  // namespace moepack
