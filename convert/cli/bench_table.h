// What the tables of bench and of its replay are made of.
#pragma once

#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>

namespace moepack::cli {

struct Column {
  const char* name;
  int width;
  bool is_text = false;
};

// With so many digits behind the point.
inline std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

inline nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace moepack::cli
