// What GPTQ and the refinement promise, on problems of awkward sizes.
#include "quant/refine.h"

#include <cmath>

#include <gtest/gtest.h>

#include "quant/gptq.h"
#include "quant/grid.h"
#include "tests/support/random_matrix.h"

namespace moepack::refine_test {
namespace {

using testing::hessian_of;
using testing::objective;
using testing::random_inputs;
using testing::random_weights;

struct Problem {
  std::size_t rows, cols, group;
  std::uint32_t bits;
};

class Refinement : public ::testing::TestWithParam<Problem> {};

std::vector<float> diagonal(const Matrix& h) { return {h.diagonal().begin(), h.diagonal().end()}; }

TEST_P(Refinement, EveryStepImprovesTheOutput) {
  const Problem p = GetParam();
  const Matrix w = random_weights(p.rows, p.cols, 1);
  const Matrix h = hessian_of(random_inputs(p.cols, 4 * p.cols, 2));
  AffineMatrix q(p.rows, p.cols, p.bits, p.group);
  choose_grid(GridMethod::kTwoSided, w, diagonal(h), q);
  const double grid = objective(q, w, h);
  AffineMatrix direct = q;
  refine(w, h, {}, direct);
  const auto factor = factor_hessian(h, 0.01F);
  ASSERT_TRUE(factor.has_value());
  gptq_codes(w, *factor, q);
  const double gptq = objective(q, w, h);
  const RefineResult result = refine(w, h, {}, q);
  const double refined = objective(q, w, h);
  EXPECT_LT(gptq, 0.9 * grid);
  EXPECT_LT(refined, 0.99 * gptq);
  EXPECT_LT(objective(direct, w, h), 0.9 * grid);
  EXPECT_NEAR(result.objective / refined, 1, 1e-3);
  // Padding rows never change.
  EXPECT_EQ(
      q.codes.bottomRows(q.codes.rows() - static_cast<Eigen::Index>(p.rows)).cast<int>().sum(), 0);
}

TEST_P(Refinement, AFixedPointStays) {
  const Problem p = GetParam();
  const Matrix w = random_weights(p.rows, p.cols, 3);
  const Matrix h = hessian_of(random_inputs(p.cols, 4 * p.cols, 4));
  AffineMatrix q(p.rows, p.cols, p.bits, p.group);
  choose_grid(GridMethod::kMinMax, w, {}, q);
  refine(w, h, {.passes = 100, .rounds = 4, .least_gain = 0}, q);
  const double before = objective(q, w, h);
  const RefineResult again = refine(w, h, {.passes = 1, .rounds = 4, .least_gain = 0}, q);
  EXPECT_NEAR(again.objective / before, 1, 1e-4);
  EXPECT_NEAR(objective(q, w, h) / before, 1, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Problems, Refinement,
                         ::testing::Values(Problem{33, 192, 64, 3}, Problem{16, 256, 128, 2},
                                           Problem{7, 288, 32, 4}, Problem{50, 64, 64, 2}));

// With independent inputs of equal size the output error is the weight error, and codes that no
// neighbour can help are the nearest ones.
TEST(Gptq, WithoutCorrelationIsRounding) {
  const Matrix w = random_weights(20, 256, 5);
  const Matrix h = Matrix::Identity(256, 256) * 3.0F;
  AffineMatrix q(20, 256, 2, 64);
  choose_grid(GridMethod::kClip, w, {}, q);
  AffineMatrix g = q;
  gptq_codes(w, factor_hessian(h, 0.01F).value(), g);
  EXPECT_EQ(g.codes, q.codes);
}

TEST(Gptq, DampingGrowsUntilARankDeficientHessianFactors) {
  const Matrix h = hessian_of(random_inputs(256, 3, 6)) * 1e6F;
  const auto factor = factor_hessian(h, 1e-9F);
  ASSERT_TRUE(factor.has_value());
  EXPECT_GT(factor->damping, 1e-9F);
  EXPECT_TRUE(factor->inverse.triangularView<Eigen::Upper>().toDenseMatrix().allFinite());
}

TEST(Gptq, AHessianThatIsNotFiniteIsRefused) {
  Matrix h = hessian_of(random_inputs(64, 300, 6));
  h(3, 5) = h(5, 3) = NAN;
  EXPECT_FALSE(factor_hessian(h, 0.01F).has_value());
}

TEST(Gptq, ColumnsWithoutInputAreRoundedAndDisturbNothing) {
  const Matrix w = random_weights(16, 128, 8);
  Matrix x = random_inputs(128, 500, 9);
  for (Eigen::Index dead : {3, 64, 127}) x.row(dead).setZero();
  const Matrix h = hessian_of(x);
  AffineMatrix q(16, 128, 2, 64);
  choose_grid(GridMethod::kTwoSided, w, diagonal(h), q);
  const AffineMatrix rounded = q;
  gptq_codes(w, factor_hessian(h, 0.01F).value(), q);
  for (Eigen::Index dead : {3, 64, 127}) EXPECT_EQ(q.codes.col(dead), rounded.codes.col(dead));
  refine(w, h, {}, q);
  Matrix off;
  stored_minus(q, w, off);
  EXPECT_TRUE(off.allFinite());
}

}  // namespace
}  // namespace moepack::refine_test
