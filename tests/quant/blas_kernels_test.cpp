// OpenBLAS must not compute with a Pentium 4's kernels because it takes a new processor for one.
#include "quant/blas_kernels.h"

#include <cblas.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "quant/linear_algebra.h"

namespace moepack::blas_kernels_test {
namespace {

TEST(BlasKernels, AreThoseOfTheProcessorsInstructions) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") == 0) GTEST_SKIP() << "SKIPPED: this processor has no AVX2";
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) GTEST_SKIP() << "SKIPPED: OPENBLAS_CORETYPE";
  EXPECT_NE(std::string(openblas_get_corename()), "Prescott");
#endif
  EXPECT_FALSE(choose_blas_kernels()) << "they were chosen before main";
}

// What was chosen computes: (A A^T)[i][j] of small whole numbers is exact.
TEST(BlasKernels, MultiplyExactly) {
  constexpr Eigen::Index kN = 67;
  Matrix a(kN, kN);
  for (Eigen::Index i = 0; i < kN; ++i) {
    for (Eigen::Index j = 0; j < kN; ++j) a(i, j) = static_cast<float>((i * 7 + j * 3) % 11 - 5);
  }
  Matrix out(kN, kN);
  cblas_sgemm(CblasColMajor, CblasNoTrans, CblasTrans, kN, kN, kN, 1.0F, a.data(), kN, a.data(), kN,
              0.0F, out.data(), kN);
  for (Eigen::Index i = 0; i < kN; ++i) {
    for (Eigen::Index j = 0; j < kN; ++j) {
      float sum = 0;
      for (Eigen::Index k = 0; k < kN; ++k) sum += a(i, k) * a(j, k);
      ASSERT_EQ(out(i, j), sum) << i << ' ' << j;
    }
  }
}

}  // namespace
}  // namespace moepack::blas_kernels_test
