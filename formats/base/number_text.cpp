#include "formats/base/number_text.h"

#include <array>
#include <charconv>
#include <cstdio>

namespace moepack {

std::string six_digits(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

double shortest_decimal(float value) {
  std::array<char, 64> text;
  const char* end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double decimal = value;
  (void)std::from_chars(text.data(), end, decimal);
  return decimal;
}

}  // namespace moepack
