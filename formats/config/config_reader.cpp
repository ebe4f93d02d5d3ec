#include "formats/config/config_reader.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "formats/base/number_text.h"

namespace moepack {
namespace {

constexpr std::string_view kRemedy = "download config.json again";
constexpr std::size_t kShownChars = 64;

}  // namespace

const nlohmann::json* ConfigReader::find(std::string_view key) const {
  const auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

Result<std::optional<ConfigReader>> ConfigReader::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::optional<ConfigReader>();
  if (!value->is_object()) return error(key, "is " + shown(*value) + ", not an object");
  return std::optional(nested(key, *value));
}

Result<std::optional<std::uint32_t>> ConfigReader::optional_dimension(std::string_view key,
                                                                      std::uint32_t maximum) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::optional<std::uint32_t>();
  const std::uint64_t number = value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
  if (number == 0 || number > maximum) {
    return error(
        key, "is " + shown(*value) + ", not a whole number from 1 to " + std::to_string(maximum));
  }
  return std::optional(static_cast<std::uint32_t>(number));
}

Result<std::optional<double>> ConfigReader::optional_number(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::optional<double>();
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!std::isfinite(number)) return error(key, "is " + shown(*value) + ", not a number");
  return std::optional(number);
}

Result<std::optional<bool>> ConfigReader::optional_flag(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return error(key, "is " + shown(*value) + ", not true or false");
  return std::optional(value->get<bool>());
}

Result<std::optional<std::string>> ConfigReader::optional_text(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return error(key, "is " + shown(*value) + ", not a string");
  return std::optional(value->get<std::string>());
}

Status ConfigReader::dimension(std::string_view key, std::uint32_t fallback, std::uint32_t& out,
                               std::uint32_t maximum) const {
  MOE_ASSIGN_OR_RETURN(const auto value, optional_dimension(key, maximum));
  out = value.value_or(fallback);
  return Status::ok();
}

Result<double> ConfigReader::number_in(std::string_view key, double fallback, double least,
                                       double most) const {
  MOE_ASSIGN_OR_RETURN(const auto value, optional_number(key));
  if (!value.has_value()) return fallback;
  if (*value >= least && *value <= most) return *value;
  return error(key, "is " + shown(*find(key)) + ", not a number from " + six_digits(least) +
                        " to " + six_digits(most));
}

Status ConfigReader::require_flag(std::string_view key, bool implemented) const {
  MOE_ASSIGN_OR_RETURN(const auto value, optional_flag(key));
  if (value.value_or(implemented) == implemented) return Status::ok();
  return unsupported_value(key, *value ? "true" : "false");
}

Status ConfigReader::require_text(std::string_view key, std::string_view implemented) const {
  MOE_ASSIGN_OR_RETURN(const auto value, optional_text(key));
  if (!value.has_value() || *value == implemented) return Status::ok();
  return unsupported_value(key, "\"" + printable(*value, kShownChars) + "\"");
}

Status ConfigReader::require_absent(std::string_view key) const {
  const nlohmann::json* value = find(key);
  return value == nullptr ? Status::ok() : unsupported_value(key, shown(*value));
}

Status ConfigReader::error(std::string_view key, std::string_view what) const {
  return corrupt({.file = *file_},
                 printable(path_, 1024) + printable(key) + " " + std::string(what), kRemedy);
}

Status ConfigReader::unsupported_value(std::string_view key, std::string_view what) const {
  return unsupported({.file = *file_}, printable(path_, 1024) + printable(key) + " " +
                                           std::string(what) + " is not implemented");
}

std::string ConfigReader::shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return printable(value.dump(-1, ' ', true), kShownChars);
}

}  // namespace moepack
