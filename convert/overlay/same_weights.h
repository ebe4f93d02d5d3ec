// Tells by a few rows of each whether two sets of matrices are roundings of the same weights, so
// that tensors of another model, or in another order, are noticed before they are put together.
#pragma once

#include <cstdint>
#include <string>

#include "convert/source/stored_matrix.h"
#include "formats/base/status.h"

namespace moepack {

// Holds the buffers of one thread.
class WeightSampler {
 public:
  // sqrt(sum (a - b)^2 / sum b^2) over `rows` rows of both, evenly spread; 0 where those of b are
  // all zero. Both hold as many elements in the same order; `cols`: of a row, whole groups and
  // blocks of both. At most kDecodeBlock elements of a row are looked at.
  Result<double> difference(const StoredMatrix& a, const StoredMatrix& b, std::uint64_t cols,
                            std::uint64_t rows);

 private:
  BlockDecoder a_;
  BlockDecoder b_;
};

// Roundings of the same weights stay below this relative difference, whatever quantizer made them.
// Matrices that have nothing in common have 1.41, and a matrix of zeros has 1.
constexpr double kMaxRelativeRms = 0.95;

}  // namespace moepack
