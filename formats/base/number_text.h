// Numbers as people and other programs write them.
#pragma once

#include <string>

namespace moepack {

// Six significant digits, as "%.6g" gives them: for measured values. Fit for JSON where `value` is
// finite.
std::string six_digits(double value);

// What the shortest decimal of `value` stands for: 1e-06, not 9.99999997e-07.
double shortest_decimal(float value);

}  // namespace moepack
