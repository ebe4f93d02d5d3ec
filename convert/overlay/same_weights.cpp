#include "convert/overlay/same_weights.h"

#include <algorithm>
#include <cmath>

namespace moepack {

Result<double> WeightSampler::difference(const StoredMatrix& a, const StoredMatrix& b,
                                         std::uint64_t cols, std::uint64_t rows) {
  const std::uint64_t all_rows = b.elements() / cols;
  const std::uint64_t taken = std::min(rows, all_rows);
  const std::uint64_t count = std::min(cols, kDecodeBlock);
  double error = 0;
  double power = 0;
  for (std::uint64_t i = 0; i < taken; ++i) {
    const std::uint64_t first = all_rows * i / taken * cols;
    MOE_ASSIGN_OR_RETURN(const DecodedBlock x, a_.decode(a, first, count));
    MOE_ASSIGN_OR_RETURN(const DecodedBlock y, b_.decode(b, first, count));
    for (std::size_t k = 0; k < count; ++k) {
      const double value = y.values[k];
      const double off = x.values[k] - value;
      error += off * off;
      power += value * value;
    }
  }
  return power > 0 ? std::sqrt(error / power) : 0;
}

}  // namespace moepack
