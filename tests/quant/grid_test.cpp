// The searches for scale and bias against a plain double-precision program, and their promises.
#include "quant/grid.h"

#include <cmath>

#include <gtest/gtest.h>

#include "formats/base/dtype.h"
#include "tests/support/random_matrix.h"

namespace moepack::grid_test {
namespace {

using testing::random_weights;

std::vector<float> importance(std::size_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(cols);
  for (float& h : out) h = std::exp(normal(random));
  return out;
}

double weighted_error(const AffineMatrix& q, const Matrix& w, std::span<const float> h) {
  Matrix off;
  stored_minus(q, w, off);
  double sum = 0;
  for (Eigen::Index c = 0; c < off.cols(); ++c) {
    const double weight = h.empty() ? 1.0 : double{h[static_cast<std::size_t>(c)]};
    sum += weight * off.col(c).cast<double>().squaredNorm();
  }
  return sum;
}

// One group by the definition of clipping: 20 ratios, the first with the least squared error.
double clip_error(const Matrix& w, Eigen::Index row, Eigen::Index first, std::size_t group,
                  double levels) {
  const auto part = w.row(row).segment(first, static_cast<Eigen::Index>(group)).cast<double>();
  const double mean = part.mean();
  double best = INFINITY;
  for (int i = 0; i < 20; ++i) {
    const double ratio = 0.7 + 0.3 * i / 19;
    const double lo = mean - ratio * (mean - part.minCoeff());
    const double hi = mean + ratio * (part.maxCoeff() - mean);
    const double s = bf16_to_f32(f32_to_bf16(static_cast<float>((hi - lo) / levels)));
    const double b = bf16_to_f32(f32_to_bf16(static_cast<float>(lo)));
    double error = 0;
    for (double x : part) {
      const double code = std::min(std::max(std::nearbyint((x - b) / s), 0.0), levels);
      error += (x - s * code - b) * (x - s * code - b);
    }
    best = std::min(best, error);
  }
  return best;
}

TEST(Grid, ClipIsTheBestOfTwentyRatios) {
  constexpr std::size_t kRows = 18;
  constexpr std::size_t kCols = 128;
  const Matrix w = random_weights(kRows, kCols, 1);
  for (std::uint32_t bits : {2U, 4U}) {
    AffineMatrix q(kRows, kCols, bits, 64);
    choose_grid(GridMethod::kClip, w, {}, q);
    double expected = 0;
    for (Eigen::Index r = 0; r < static_cast<Eigen::Index>(kRows); ++r) {
      for (Eigen::Index first : {0, 64}) expected += clip_error(w, r, first, 64, (1 << bits) - 1);
    }
    EXPECT_NEAR(weighted_error(q, w, {}) / expected, 1, 1e-5) << bits << " bits";
  }
}

TEST(Grid, TwoSidedIsNeverWorseThanClipWhichIsNeverWorseThanRounding) {
  for (std::uint32_t bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
    for (std::size_t group : {32U, 64U, 128U}) {
      const Matrix w = random_weights(16, 256, bits);
      const std::vector<float> weights = importance(256, bits);
      for (const std::span<const float> h : {std::span<const float>(), std::span(weights)}) {
        double last = 0;
        for (GridMethod method : {GridMethod::kTwoSided, GridMethod::kClip, GridMethod::kMinMax}) {
          AffineMatrix q(16, 256, bits, group);
          choose_grid(method, w, h, q);
          const double error = weighted_error(q, w, h);
          EXPECT_GE(error * (1 + 1e-6), last) << bits << " bits, group " << group;
          last = error;
        }
      }
    }
  }
}

TEST(Grid, WeightsDecide) {
  const Matrix w = random_weights(64, 128, 7);
  const std::vector<float> h = importance(128, 7);
  AffineMatrix weighted(64, 128, 2, 64);
  AffineMatrix plain(64, 128, 2, 64);
  choose_grid(GridMethod::kTwoSided, w, h, weighted);
  choose_grid(GridMethod::kTwoSided, w, {}, plain);
  EXPECT_LT(weighted_error(weighted, w, h), 0.95 * weighted_error(plain, w, h));
  EXPECT_LT(weighted_error(plain, w, {}), weighted_error(weighted, w, {}));
}

TEST(Grid, ConstantAndEmptyGroupsAreStoredAsTheyAre) {
  Matrix w = random_weights(16, 128, 3);
  w.row(0).setConstant(0.5F);
  w.row(1).setZero();
  w.row(2).head(64).setConstant(-3.0F);
  const std::vector<float> nothing(128, 0.0F);
  for (const std::span<const float> h : {std::span<const float>(), std::span(nothing)}) {
    for (GridMethod method : {GridMethod::kMinMax, GridMethod::kClip, GridMethod::kTwoSided}) {
      AffineMatrix q(16, 128, 3, 64);
      choose_grid(method, w, h, q);
      Matrix off;
      stored_minus(q, w, off);
      EXPECT_EQ(off.row(0).norm() + off.row(1).norm() + off.row(2).head(64).norm(), 0.0F);
      EXPECT_TRUE(off.allFinite());
    }
  }
}

TEST(Grid, ScalesAndBiasesAreBf16) {
  const Matrix w = random_weights(16, 128, 5);
  for (GridMethod method : {GridMethod::kMinMax, GridMethod::kClip, GridMethod::kTwoSided}) {
    AffineMatrix q(16, 128, 2, 32);
    choose_grid(method, w, {}, q);
    for (const Matrix* values : {&q.scale, &q.bias}) {
      for (float v : values->reshaped()) EXPECT_EQ(v, bf16_to_f32(f32_to_bf16(v)));
    }
  }
}

}  // namespace
}  // namespace moepack::grid_test
