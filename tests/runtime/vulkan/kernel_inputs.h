// Random inputs and batches for tests of kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "shaders/shared_types.h"

namespace moepack {

inline std::vector<float> random_values(std::size_t count, float magnitude, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, magnitude);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// values[first, first + count).
template <typename T>
std::vector<T> part(const std::vector<T>& values, std::size_t first, std::size_t count) {
  return {values.data() + first, values.data() + first + count};
}

// Rows of consecutive slices.
struct TestBatch {
  std::vector<shader::BatchRow> rows;
  std::vector<shader::BatchSlice> slices;

  void add(std::uint32_t position, std::uint32_t count, bool is_live = true) {
    const auto slice = static_cast<std::uint32_t>(slices.size());
    const std::uint32_t live = is_live ? 1 : 0;
    slices.push_back({static_cast<std::uint32_t>(rows.size()), count, position, live});
    for (std::uint32_t t = 0; t < count; ++t) rows.push_back({0, position + t, slice, live});
  }
};

// Largest |got - want| relative to the largest |want|; infinite where one is not finite and the
// other is.
inline double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double most = 0;
  double error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(got[i]) != std::isfinite(want[i])) {
      return std::numeric_limits<double>::infinity();
    }
    if (!std::isfinite(want[i])) continue;
    most = std::max(most, std::fabs(static_cast<double>(want[i])));
    error = std::max(error, std::fabs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
  }
  return most == 0 ? error : error / most;
}

}  // namespace moepack
