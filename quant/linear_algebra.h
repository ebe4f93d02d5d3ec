// Dense float32 matrices and the level-3 operations of the quantizer, on OpenBLAS. Column-major.
// Every call computes in the thread that makes it, and OpenBLAS starts no thread of its own: the
// quantizer works on many experts at once instead, and results do not depend on the number of
// threads. The functions may be called from any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include <Eigen/Core>

#include "formats/base/status.h"

namespace moepack {

using Matrix = Eigen::MatrixXf;

// Whether `threads` threads can be in these functions at once beside `other_bytes` of memory; kIo
// when they cannot. Each thread needs a buffer that OpenBLAS takes once and keeps. Where the
// process may have no more address space OpenBLAS tries for ever instead of failing, so ask first.
Status check_blas_memory(std::size_t threads, std::uint64_t other_bytes);

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
