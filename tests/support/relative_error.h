// Tells how far two vectors are apart.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include <gtest/gtest.h>

namespace moepack::test {

// ‖ours - reference‖ / ‖reference‖ in double.
inline double relative_error(std::span<const float> ours, std::span<const float> reference) {
  EXPECT_EQ(ours.size(), reference.size());
  if (ours.size() != reference.size()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double d = double{ours[i]} - double{reference[i]};
    difference += d * d;
    norm += double{reference[i]} * double{reference[i]};
  }
  return std::sqrt(difference / norm);
}

}  // namespace moepack::test
