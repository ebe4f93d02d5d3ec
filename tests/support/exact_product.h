// Products in double, computed as the formats' definitions say, and the bound on a kernel's error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/weights/qformat.h"

namespace moepack::test {

// The products of all rows with all tokens, [tokens, rows].
struct ExactProduct {
  std::vector<double> value;
  std::vector<double> magnitude;  // sum of |terms|, what rounding errors are proportional to
  // The sum of |terms| with each input replaced by the largest of its block, to which the error of
  // rounding inputs to block-wise integers is proportional.
  std::vector<double> peak;
  double largest_scale = 0;  // of an affine matrix; of blocks 16 times the largest magnitude
};

// Inputs that share a power of two where products are formed in integers (runtime/model/kernels.h).
inline std::uint64_t unit_inputs(QFormatId id) {
  return id == QFormatId::kQ2K || id == QFormatId::kQ3K ? 256 : 32;
}
ExactProduct exact_product(const QMatrixView& w, const float* x, std::size_t x_stride,
                           std::size_t tokens);

// The bound of runtime/model/kernels.h on the error of element `at`. `in_integers` says whether the
// product was formed in integers.
inline double product_bound(const ExactProduct& exact, std::size_t at, std::uint64_t cols,
                            bool in_integers) {
  const auto n = static_cast<double>(cols);
  const double inputs = in_integers ? 2.01 * 0x1p-24 * exact.peak[at] : 0.0;
  return (n / 8 + 32) * 0x1p-24 * exact.magnitude[at] + inputs +
         n * (0x1p-149 + 0x1p-126 * exact.largest_scale);
}

}  // namespace moepack::test
