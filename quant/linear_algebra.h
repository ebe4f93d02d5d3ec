// Dense float32 matrices and the level-3 operations of the quantizer, on OpenBLAS. Column-major.
#pragma once

#include <Eigen/Core>

namespace moepack {

using Matrix = Eigen::MatrixXf;

// From now on every BLAS call of this process runs in the thread that makes it: the quantizer works
// on many experts at once instead, and results do not depend on the number of threads. Call before
// any of the functions below are used from several threads.
void use_one_blas_thread();

// upper += x x^T in the upper triangle (the lower one is not touched). x: [n, k]; upper: [n, n].
void add_gram(const Eigen::Ref<const Matrix>& x, Matrix& upper);
// Copies the upper triangle into the lower one.
void mirror_upper(Matrix& square);

// For a symmetric positive definite `a` (its upper triangle is read) with a = C^T C, C upper
// triangular: leaves C^-1 in the upper triangle of `a`. False, with `a` destroyed, when a pivot is
// not positive or not finite.
bool invert_cholesky(Matrix& a);

// out = a b, sizes as given; out is overwritten.
void multiply(const Eigen::Ref<const Matrix>& a, const Eigen::Ref<const Matrix>& b,
              Eigen::Ref<Matrix> out);
// out += a b^T.
void add_product(const Eigen::Ref<const Matrix>& a, const Eigen::Ref<const Matrix>& b,
                 Eigen::Ref<Matrix> out);
// out -= a b^T.
void subtract_product(const Eigen::Ref<const Matrix>& a, const Eigen::Ref<const Matrix>& b,
                      Eigen::Ref<Matrix> out);

}  // namespace moepack
