// GPTQ with static groups and activation order: codes one column after another, each column's
// rounding error made up for by the columns that follow.
// Sources: GPTQ, arXiv 2210.17323; act-order and static groups as in its later implementations.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "quant/affine_matrix.h"

namespace moepack {

// What GPTQ needs of a Hessian H = mean of x x^T over inputs x; shared by all matrices that read
// the same inputs.
struct GptqFactor {
  // Columns by rising H_jj; of equal ones, the one that is rounded later comes first. GPTQ goes
  // from the last to the first.
  std::vector<std::uint32_t> order;
  // With P = H permuted by `order`, damping * mean(diagonal) added to its diagonal, and P = C^T C:
  // C^-1, upper triangular. Column p holds what the rounding of column p does to those before it.
  Matrix inverse;
  float damping = 0;  // as it was when the factorization succeeded
};

// Factors `hessian` [n, n], which is symmetric with a diagonal >= 0. A column without input
// (diagonal 0) takes no part in any compensation. Damping starts at `damping` and grows until the
// factorization succeeds; nullopt when it fails even with damping 10 (a Hessian that is not
// finite). Both functions may be called from any number of threads.
std::optional<GptqFactor> factor_hessian(const Matrix& hessian, float damping);

// Chooses the codes of `q` for w [padded rows, cols], with the scales and biases that `q` has.
void gptq_codes(const Matrix& w, const GptqFactor& factor, AffineMatrix& q);

}  // namespace moepack
