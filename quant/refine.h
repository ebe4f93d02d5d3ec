// Alternating refinement of an affine matrix under a Hessian: scales and biases in closed form,
// then codes one by one, until it no longer pays. It may start from any codes, and never makes the
// objective worse. Pure; any number of threads.
// Sources: LNQ, arXiv 2505.07004; QuantEase, arXiv 2309.01885; CDQuant, arXiv 2406.17542.
#pragma once

#include <cstdint>

#include "quant/affine_matrix.h"

namespace moepack {

struct RefineOptions {
  std::uint32_t passes = 4;  // over all columns, each one product [rows, cols] x [cols, cols]
  std::uint32_t rounds = 2;  // within a block of columns, before the others are looked at
  double least_gain = 1e-3;  // stops after a pass that gained less than this share
};

struct RefineResult {
  std::uint32_t passes = 0;
  double objective = 0;  // tr(E H E^T) at the end, E = stored - w; up to rounding of float32
};

// w: [padded rows, cols]; hessian: [cols, cols], symmetric, not negative.
RefineResult refine(const Matrix& w, const Matrix& hessian, const RefineOptions& options,
                    AffineMatrix& q);

}  // namespace moepack
