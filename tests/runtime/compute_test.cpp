// Norms over values whose squares are beyond float32.
#include "runtime/model/compute.h"

#include <gtest/gtest.h>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/model/finite.h"

namespace moepack {
namespace {

constexpr std::size_t kWidth = 48;

std::vector<float> some_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i) * 1.7F) + 0.01F;
  }
  return values;
}

std::vector<float> scaled(std::vector<float> values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

std::vector<float> normed(const std::vector<float>& x, float eps) {
  std::array<float, 64> scratch{};
  Compute compute(reference_kernels(), 1, scratch);
  const std::vector<float> factor = some_values(kWidth);
  std::vector<float> out(x.size());
  rms_norm(compute, x.data(), factor, eps, x.size() / kWidth, kWidth, out.data());
  return out;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 1e-6F * std::fabs(b[i]) + 1e-12F) << i;
  }
}

TEST(RmsNorm, LargeValuesAreNormedAsSmallOnesAre) {
  const std::vector<float> x = some_values(kWidth);
  for (const float scale : {1e19F, 1e25F, 3e38F}) {
    expect_near(normed(scaled(x, scale), 1e-6F), normed(x, 0.0F));
  }
}

// A row of large values among others: theirs keep every bit.
TEST(RmsNorm, OtherRowsKeepTheirBits) {
  std::vector<float> x = some_values(3 * kWidth);
  const std::vector<float> before = normed(x, 1e-6F);
  for (std::size_t i = 0; i < kWidth; ++i) x[kWidth + i] *= 1e30F;
  const std::vector<float> after = normed(x, 1e-6F);
  for (std::size_t i = 0; i < 3 * kWidth; ++i) {
    if (i / kWidth != 1) {
      EXPECT_EQ(after[i], before[i]) << i;
    }
  }
  EXPECT_TRUE(all_finite(after));
}

TEST(RmsNorm, WhatIsNotFiniteStaysSo) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = some_values(kWidth);
    x[7] = bad;
    EXPECT_FALSE(all_finite(normed(x, 1e-6F)));
  }
}

TEST(L2Norm, LargeValuesAreNormedAsSmallOnesAre) {
  std::vector<float> small = some_values(kWidth);
  l2_norm(reference_kernels(), 0.0F, 0.25F, kWidth, small.data());
  for (const float scale : {1e19F, 3e38F}) {
    std::vector<float> large = scaled(some_values(kWidth), scale);
    l2_norm(reference_kernels(), 1e-6F, 0.25F, kWidth, large.data());
    expect_near(large, small);
  }
  std::vector<float> bad = some_values(kWidth);
  bad[0] = std::numeric_limits<float>::infinity();
  l2_norm(reference_kernels(), 1e-6F, 1.0F, kWidth, bad.data());
  EXPECT_FALSE(all_finite(bad));
}

}  // namespace
}  // namespace moepack
