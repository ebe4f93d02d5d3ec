#include "formats/config/generation_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/base/json.h"

namespace moepack {

Result<std::optional<std::vector<std::int32_t>>> parse_stop_ids(std::string_view text,
                                                                const std::string& file,
                                                                std::uint64_t vocab_size) {
  const Where where{.file = file};
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, where));
  if (!document.is_object()) return corrupt(where, "is not a JSON object");
  const auto found = document.find("eos_token_id");
  if (found == document.end() || found->is_null()) {
    return std::optional<std::vector<std::int32_t>>();
  }
  const nlohmann::json list = found->is_array() ? *found : nlohmann::json::array({*found});
  std::vector<std::int32_t> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= vocab_size) {
      return corrupt(where, "eos_token_id is not an id below the vocabulary's size " +
                                std::to_string(vocab_size));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return std::optional(std::move(ids));
}

namespace {

Result<std::optional<double>> number_of(const nlohmann::json& document, const char* name,
                                        const Where& where) {
  const auto found = document.find(name);
  if (found == document.end() || found->is_null()) return std::optional<double>();
  if (found->is_number() && std::isfinite(found->get<double>()) && found->get<double>() >= 0) {
    return std::optional(found->get<double>());
  }
  return corrupt(where, std::string(name) + " is not a number of 0 or more");
}

}  // namespace

Result<GenerationDefaults> parse_generation_defaults(std::string_view text,
                                                     const std::string& file) {
  const Where where{.file = file};
  MOE_ASSIGN_OR_RETURN(const nlohmann::json document, parse_json(text, where));
  if (!document.is_object()) return corrupt(where, "is not a JSON object");
  GenerationDefaults defaults;
  MOE_ASSIGN_OR_RETURN(defaults.temperature, number_of(document, "temperature", where));
  MOE_ASSIGN_OR_RETURN(defaults.top_p, number_of(document, "top_p", where));
  MOE_ASSIGN_OR_RETURN(defaults.min_p, number_of(document, "min_p", where));
  MOE_ASSIGN_OR_RETURN(const auto top_k, number_of(document, "top_k", where));
  if (top_k.has_value()) {
    defaults.top_k = static_cast<std::int64_t>(std::min(*top_k, 1e9));
  }
  const auto samples = document.find("do_sample");
  if (samples != document.end() && samples->is_boolean() && !samples->get<bool>()) {
    defaults.temperature = 0;
  }
  return defaults;
}

}  // namespace moepack
