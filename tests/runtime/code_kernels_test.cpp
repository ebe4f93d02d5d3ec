// Products in integers: every table gives the bits of the scalar definition, whatever is computed
// beside, and the definition is the exact product of the rounded inputs.
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cpu/code_rows.h"
#include "runtime/cpu/codes_reference.h"
#include "runtime/model/kernels.h"
#include "tests/support/cpu_levels.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/panel_matrix.h"
#include "tests/support/test_matrix.h"

namespace moepack {
namespace {

using test::TestMatrix;
using test::Values;

std::vector<float> random_inputs(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// Inputs of `tokens` tokens as blocks.
struct Inputs {
  Inputs(const CodeKernels& kernels, const std::vector<float>& x, std::size_t cols)
      : blocks(x.size() / kInputGroup) {
    for (std::size_t t = 0; t < x.size() / cols; ++t) {
      rows.push_back(blocks.data() + t * input_blocks(cols));
      kernels.quantize(x.data() + t * cols, cols, blocks.data() + t * input_blocks(cols));
    }
  }
  std::vector<InputBlock> blocks;
  std::vector<const InputBlock*> rows;
};

std::vector<float> product(const CodeKernels& kernels, const QMatrixView& w,
                           std::span<const InputBlock* const> rows) {
  std::vector<float> y(rows.size() * w.rows, -1.0F);
  std::vector<float> scratch(matmul_scratch_floats(w.cols));
  kernels.multiply(w, rows.data(), rows.size(), 0, w.rows, y.data(), w.rows, scratch);
  return y;
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

class CodeKernelsTest : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = cpu_kernels(GetParam());
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = &found.value()->codes;
  }
  const CodeKernels* kernels_ = nullptr;
};

TEST_P(CodeKernelsTest, GiveTheBitsOfTheDefinition) {
  std::uint32_t seed = 0;
  std::size_t supported = 0;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!code_shape(format)) {
      EXPECT_FALSE(kernels_->supports(format)) << to_string(format);
      continue;
    }
    if (!kernels_->supports(format)) continue;
    ++supported;
    // Whole vectors of rows and a rest; chunks of columns and a rest where the format allows one.
    for (const std::uint64_t cols : {std::uint64_t{512}, std::uint64_t{1280}}) {
      for (const std::uint64_t rows : {std::uint64_t{5}, std::uint64_t{37}}) {
        const TestMatrix matrix(format, rows, cols, Values::kUsual, cols % 3, ++seed);
        const Inputs inputs(*kernels_, random_inputs(19 * cols, seed), cols);
        for (std::size_t tokens : {1U, 2U, 3U, 4U, 5U, 8U, 11U, 19U}) {
          const std::span rows_used = std::span(inputs.rows).first(tokens);
          const std::vector<float> expected =
              product(reference_code_kernels(), matrix.view(), rows_used);
          const std::vector<float> got = product(*kernels_, matrix.view(), rows_used);
          for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_TRUE(same_bits(got[i], expected[i]))
                << to_string(format) << " rows " << rows << " cols " << cols << " tokens " << tokens
                << " element " << i << ": " << got[i] << " for " << expected[i];
          }
        }
      }
    }
  }
  EXPECT_GE(supported, 48U);
}

TEST_P(CodeKernelsTest, GiveTheSameBitsForRowsInPanels) {
  std::uint32_t seed = 1000;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!kernels_->supports(format)) continue;
    EXPECT_TRUE(kernels_->supports(in_order(format, RowOrder::kPanels)));
    for (const std::uint64_t cols :
         {std::uint64_t{512}, std::uint64_t{1280}, std::uint64_t{1152}}) {
      if (!matrix_bytes(format, 53, cols).has_value()) continue;
      const std::uint64_t rows = 53;
      const TestMatrix matrix(format, rows, cols, Values::kUsual, 0, ++seed);
      const test::PanelMatrix panels(matrix.view(), cols % 3);
      const Inputs inputs(*kernels_, random_inputs(19 * cols, seed), cols);
      for (std::size_t tokens : {1U, 2U, 5U, 19U}) {
        const std::span rows_used = std::span(inputs.rows).first(tokens);
        const std::vector<float> expected =
            product(reference_code_kernels(), matrix.view(), rows_used);
        const std::vector<float> got = product(*kernels_, panels.view(), rows_used);
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_TRUE(same_bits(got[i], expected[i]))
              << to_string(format) << " cols " << cols << " tokens " << tokens << " element " << i
              << ": " << got[i] << " for " << expected[i];
        }
      }
    }
  }
}

TEST_P(CodeKernelsTest, QuantizeToTheBitsOfTheDefinition) {
  constexpr std::size_t kCols = 32 * 64;
  std::vector<float> x = random_inputs(kCols, 7);
  for (std::size_t b = 0; b < 64; ++b) {
    // Sizes from subnormal to close to the largest, ties, zeros.
    for (std::size_t i = 0; i < 32; ++i)
      x[32 * b + i] *= std::ldexp(1.0F, 4 * static_cast<int>(b) - 130);
  }
  for (std::size_t i = 0; i < 32; ++i) x[32 * 5 + i] = 0.0F;
  for (std::size_t i = 0; i < 32; ++i) x[32 * 6 + i] = static_cast<float>(i) + 0.5F;
  x[32 * 6] = 127.0F;
  x[32 * 7 + 31] = std::numeric_limits<float>::infinity();
  x[32 * 8] = std::numeric_limits<float>::quiet_NaN();
  std::vector<InputBlock> expected(64);
  std::vector<InputBlock> got(64);
  reference_code_kernels().quantize(x.data(), kCols, expected.data());
  kernels_->quantize(x.data(), kCols, got.data());
  for (std::size_t b = 0; b < 64; ++b) {
    for (std::size_t i = 0; i < 32; ++i) ASSERT_EQ(got[b].codes[i], expected[b].codes[i]) << b;
    EXPECT_TRUE(same_bits(got[b].scale, expected[b].scale)) << b;
    EXPECT_TRUE(same_bits(got[b].sum, expected[b].sum)) << b;
    EXPECT_EQ(got[b].minus_sum, expected[b].minus_sum) << b;
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_EQ(got[b].minus_half_sums[h], expected[b].minus_half_sums[h]) << b;
      EXPECT_TRUE(same_bits(got[b].half_sums[h], expected[b].half_sums[h])) << b;
    }
  }
  EXPECT_TRUE(std::isnan(got[7].scale));
  EXPECT_TRUE(std::isnan(got[8].sum));
  EXPECT_EQ(got[5].scale, 0.0F);
}

// The definition against decoded weights and the inputs that the blocks stand for, in double.
TEST(CodeDefinition, IsTheProductOfTheRoundedInputs) {
  std::uint32_t seed = 100;
  constexpr std::size_t kCols = 1024;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!code_shape(format)) continue;
    const TestMatrix matrix(format, 6, kCols, Values::kUsual, 0, ++seed);
    const std::vector<float> x = random_inputs(kCols, seed);
    const Inputs inputs(reference_code_kernels(), x, kCols);
    const std::vector<float> got = product(reference_code_kernels(), matrix.view(), inputs.rows);
    std::vector<float> row(kCols);
    for (std::size_t r = 0; r < 6; ++r) {
      decode_row(matrix.view(), r, row);
      double sum = 0;
      double size = 0;
      for (std::size_t c = 0; c < kCols; ++c) {
        const InputBlock& block = inputs.blocks[c / 32];
        const double input = static_cast<double>(block.scale) * block.codes[c % 32];
        EXPECT_LE(std::fabs(input - x[c]), block.scale * 0.5001) << c;
        sum += row[c] * input;
        size += std::fabs(row[c] * input);
      }
      // Products of biases, much larger than the weights, cancel: 2^-15 of the sizes covers them.
      EXPECT_NEAR(got[r], sum, size * 0x1p-15) << to_string(format) << " row " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, CodeKernelsTest, testing::ValuesIn(test::levels_to_test()),
                         [](const auto& level) {
                           return std::string(cpu_level_name(level.param));
                         });

}  // namespace
}  // namespace moepack
