// Products in integers: every table gives the bits of the scalar definition, whatever is computed
// beside, and the definition is the exact product of the rounded inputs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/code_rows.h"
#include "runtime/cpu/codes_reference.h"
#include "runtime/model/kernels.h"
#include "tests/support/cpu_levels.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/half_fields.h"
#include "tests/support/panel_matrix.h"
#include "tests/support/random_values.h"
#include "tests/support/test_matrix.h"

namespace moepack::code_kernels_test {
namespace {

using test::random_values;
using test::TestMatrix;
using test::Values;

// Inputs of `tokens` tokens as blocks.
struct Inputs {
  Inputs(const CodeKernels& kernels, const std::vector<float>& x, std::size_t cols,
         std::size_t digits_each)
      : digits(digits_each), blocks(x.size() / cols * input_blocks(cols, digits_each)) {
    for (std::size_t t = 0; t < x.size() / cols; ++t) {
      InputBlock* const token = blocks.data() + t * input_blocks(cols, digits);
      rows.push_back(token);
      kernels.quantize(x.data() + t * cols, cols, digits, token);
    }
  }
  // What is computed with in place of input `column` of the first token.
  double value(std::size_t column) const {
    const InputBlock* const block = &blocks[column / kInputGroup * digits];
    const std::size_t i = column % kInputGroup;
    const int code = digits == 1 ? block->codes[i] : 256 * block->codes[i] + block[1].codes[i];
    return static_cast<double>(block->scale) * code;
  }
  std::size_t digits;
  std::vector<InputBlock> blocks;
  std::vector<const InputBlock*> rows;
};

// Of the first `tokens` tokens.
std::vector<float> product(const CodeKernels& kernels, const QMatrixView& w, const Inputs& inputs,
                           std::size_t tokens) {
  std::vector<float> y(tokens * w.rows, -1.0F);
  std::vector<float> scratch(matmul_scratch_floats(w.cols));
  kernels.multiply(
      {w, inputs.rows.data(), inputs.digits, tokens, 0, w.rows, y.data(), w.rows, scratch});
  return y;
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

class CodeKernelsTest : public testing::TestWithParam<std::tuple<CpuLevel, std::size_t>> {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = cpu_kernels(std::get<0>(GetParam()));
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = &found.value()->codes;
  }
  std::size_t digits() const { return std::get<1>(GetParam()); }
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
        const Inputs inputs(*kernels_, random_values(19 * cols, seed), cols, digits());
        for (std::size_t tokens : {1U, 2U, 3U, 4U, 5U, 8U, 11U, 19U}) {
          const std::vector<float> expected =
              product(reference_code_kernels(), matrix.view(), inputs, tokens);
          const std::vector<float> got = product(*kernels_, matrix.view(), inputs, tokens);
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
      const Inputs inputs(*kernels_, random_values(19 * cols, seed), cols, digits());
      for (std::size_t tokens : {1U, 2U, 5U, 19U}) {
        const std::vector<float> expected =
            product(reference_code_kernels(), matrix.view(), inputs, tokens);
        const std::vector<float> got = product(*kernels_, panels.view(), inputs, tokens);
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
  std::vector<float> x = random_values(kCols, 7);
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
  // A low digit of -128, which becomes -127.
  x[32 * 9 + 3] = x[32 * 9] = 127.0F * 256.0F;
  x[32 * 9 + 1] = 128.0F;
  x[32 * 9 + 2] = -128.0F;
  std::vector<InputBlock> expected(64 * digits());
  std::vector<InputBlock> got(64 * digits());
  reference_code_kernels().quantize(x.data(), kCols, digits(), expected.data());
  kernels_->quantize(x.data(), kCols, digits(), got.data());
  for (std::size_t b = 0; b < got.size(); ++b) {
    for (std::size_t i = 0; i < 32; ++i) ASSERT_EQ(got[b].codes[i], expected[b].codes[i]) << b;
    EXPECT_TRUE(same_bits(got[b].scale, expected[b].scale)) << b;
    EXPECT_TRUE(same_bits(got[b].exponent, expected[b].exponent)) << b;
    EXPECT_TRUE(same_bits(got[b].sum, expected[b].sum)) << b;
    EXPECT_EQ(got[b].minus_sum, expected[b].minus_sum) << b;
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_EQ(got[b].minus_half_sums[h], expected[b].minus_half_sums[h]) << b;
      EXPECT_TRUE(same_bits(got[b].half_sums[h], expected[b].half_sums[h])) << b;
    }
  }
  EXPECT_TRUE(std::isnan(got[7 * digits()].scale));
  EXPECT_TRUE(std::isnan(got[8 * digits()].sum));
  EXPECT_EQ(got[5 * digits()].scale, 0.0F);
}

// Tokens come in parts of kPanelTokens, and their scales may be anything.
TEST_P(CodeKernelsTest, ManyTokensOfAnySizeGiveTheBitsOfTheDefinition) {
  constexpr std::size_t kCols = 768;
  constexpr std::size_t kTokens = 2 * kPanelTokens + 3;
  std::vector<float> x = random_values(kTokens * kCols, 77);
  for (std::size_t b = 0; b < x.size() / kInputGroup; ++b) {
    const float size = std::ldexp(1.0F, static_cast<int>(b * 37 % 160) - 100);
    for (std::size_t i = 0; i < kInputGroup; ++i) {
      x[b * kInputGroup + i] *= b % 11 == 0 ? 0.0F : size;
    }
  }
  x[70 * kCols + 5] = std::numeric_limits<float>::infinity();
  for (const QFormatId id : {QFormatId::kQ40, QFormatId::kQ4K, QFormatId::kQ6K}) {
    for (const Values values : {Values::kUsual, Values::kSubnormal, Values::kHuge}) {
      const TestMatrix matrix({.id = id}, 53, kCols, values, 0, 8);
      const test::PanelMatrix panels(matrix.view(), 0);
      const Inputs inputs(*kernels_, x, kCols, digits());
      for (const std::size_t tokens : {std::size_t{16}, kTokens}) {
        const std::vector<float> expected =
            product(reference_code_kernels(), matrix.view(), inputs, tokens);
        for (const QMatrixView& view : {matrix.view(), panels.view()}) {
          const std::vector<float> got = product(*kernels_, view, inputs, tokens);
          for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_TRUE(same_bits(got[i], expected[i]))
                << to_string(view.format) << " tokens " << tokens << " element " << i << ": "
                << got[i] << " for " << expected[i];
          }
        }
      }
    }
  }
}

// Of a prompt at equal distances, which tiles take; of an expert anywhere, in any order.
TEST_P(CodeKernelsTest, ManyTokensOfEveryFormatMayLieAnywhere) {
  constexpr std::size_t kCols = 1280;
  constexpr std::size_t kTokens = 48;  // tiles are full; with 34 the last begins in the one before
  const std::vector<float> x = random_values(kTokens * kCols, 78);
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!kernels_->supports(format)) continue;
    const TestMatrix matrix(format, 32, kCols, Values::kUsual, 0, 9);
    const test::PanelMatrix panels(matrix.view(), 0);
    Inputs inputs(*kernels_, x, kCols, digits());
    for (const bool is_shuffled : {false, true}) {
      if (is_shuffled) std::ranges::shuffle(inputs.rows, std::mt19937(3));
      const std::vector<float> expected =
          product(reference_code_kernels(), matrix.view(), inputs, kTokens);
      for (const std::size_t tokens : {std::size_t{34}, kTokens}) {
        for (const QMatrixView& view : {matrix.view(), panels.view()}) {
          const std::vector<float> got = product(*kernels_, view, inputs, tokens);
          for (std::size_t i = 0; i < got.size(); ++i) {
            ASSERT_TRUE(same_bits(got[i], expected[i]))
                << to_string(view.format) << (is_shuffled ? " shuffled" : "") << " tokens "
                << tokens << " element " << i << ": " << got[i] << " for " << expected[i];
          }
        }
      }
    }
  }
}

TEST_P(CodeKernelsTest, QuantizeAPartOfATokenAsTheWhole) {
  constexpr std::size_t kCols = 768;
  const std::vector<float> x = random_values(kCols, 2);
  const Inputs whole(*kernels_, x, kCols, digits());
  std::vector<InputBlock> parts(input_blocks(kCols, digits()));
  for (std::size_t begin = 0; begin < kCols; begin += 96) {
    kernels_->quantize(x.data() + begin, 96, digits(),
                       parts.data() + input_blocks(begin, digits()));
  }
  for (std::size_t b = 0; b < parts.size(); ++b) {
    EXPECT_TRUE(std::ranges::equal(parts[b].codes, whole.blocks[b].codes)) << b;
    EXPECT_EQ(parts[b].scale, whole.blocks[b].scale) << b;
    EXPECT_EQ(parts[b].minus_sum, whole.blocks[b].minus_sum) << b;
  }
}

TEST_P(CodeKernelsTest, InputsThatAreNotFiniteMakeEveryProductNan) {
  constexpr std::size_t kCols = 768;
  std::vector<float> x = random_values(2 * kCols, 7);
  x[700] = std::numeric_limits<float>::infinity();
  const Inputs inputs(*kernels_, x, kCols, digits());
  const TestMatrix matrix({.id = QFormatId::kQ40}, 16, kCols, Values::kUsual, 0, 8);
  const std::vector<float> y = product(*kernels_, matrix.view(), inputs, 2);
  for (std::size_t r = 0; r < 16; ++r) {
    EXPECT_TRUE(std::isnan(y[r]));
    EXPECT_TRUE(std::isfinite(y[16 + r])) << "another token's inputs";
  }
}

// The largest codes of every kind with the largest weights: no sum leaves 32 bits.
TEST_P(CodeKernelsTest, TheLargestInputsGiveTheBitsOfTheDefinition) {
  constexpr std::size_t kCols = 512;
  std::vector<float> x(7 * kCols, -127.0F);
  for (std::size_t i = 0; i < 3 * kCols; ++i) x[i] = i % 2 == 0 ? 127.0F : -127.0F;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!kernels_->supports(format)) continue;
    const TestMatrix matrix(format, 32, kCols, Values::kUsual, 0, 5);
    const Inputs inputs(*kernels_, x, kCols, digits());
    const std::vector<float> expected = product(reference_code_kernels(), matrix.view(), inputs, 7);
    const std::vector<float> got = product(*kernels_, matrix.view(), inputs, 7);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(same_bits(got[i], expected[i])) << to_string(format) << " element " << i;
    }
  }
}

// All codes the largest, all digits too: where products are added up in 16 bits, none may be lost.
class LargestCodes {
 public:
  static constexpr std::size_t kRows = 16;
  static constexpr std::size_t kCols = 512;

  explicit LargestCodes(const WeightFormat& format)
      : usual_(format, kRows, kCols, Values::kUsual, 0, 5),
        codes_(matrix_bytes(format, kRows, kCols).value().codes(), std::byte{0xff}),
        view_(usual_.view()) {
    const QFormatInfo& info = qformat_info(format.id);
    for (std::size_t b = 0; b < codes_.size() && !is_affine(format); b += info.block_bytes) {
      for (const std::size_t offset : test::half_fields(format.id)) {
        store_le(codes_.data() + b + offset, std::uint16_t{0x3c00});  // 1 in binary16
      }
    }
    view_.data.codes() = codes_.data();
  }
  const QMatrixView& view() const { return view_; }

 private:
  TestMatrix usual_;
  std::vector<std::byte> codes_;
  QMatrixView view_;
};

TEST_P(CodeKernelsTest, SumsOfTheLargestCodesAndDigitsGiveTheBitsOfTheDefinition) {
  constexpr std::size_t kCols = LargestCodes::kCols;
  constexpr float kLargestHigh = 127.0F * 256.0F;
  std::vector<float> x(8 * kCols);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t token = i / kCols;
    // With two digits 127 and 0, then 127 and -127.
    const float size = i % kInputGroup == 0 ? kLargestHigh : kLargestHigh - 127.0F;
    const bool is_minus = token % 4 == 0 || (token % 4 == 1 && i % 4 < 2);
    x[i] = is_minus ? -size : size;
  }
  std::vector<WeightFormat> formats;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (is_affine(format)) formats.push_back(format);
  }
  for (const QFormatId id : {QFormatId::kQ40, QFormatId::kQ51, QFormatId::kQ80, QFormatId::kQ2K,
                             QFormatId::kQ3K, QFormatId::kQ6K, QFormatId::kIq2S}) {
    formats.push_back({.id = id});
  }
  const Inputs inputs(*kernels_, x, kCols, digits());
  for (const WeightFormat& format : formats) {
    if (!kernels_->supports(format)) continue;
    const LargestCodes matrix(format);
    const test::PanelMatrix panels(matrix.view(), 0);
    for (const std::size_t tokens : {std::size_t{1}, std::size_t{8}}) {
      const std::vector<float> expected =
          product(reference_code_kernels(), matrix.view(), inputs, tokens);
      for (const QMatrixView& view : {matrix.view(), panels.view()}) {
        const std::vector<float> got = product(*kernels_, view, inputs, tokens);
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_TRUE(std::isfinite(expected[i])) << to_string(view.format);
          ASSERT_TRUE(same_bits(got[i], expected[i]))
              << to_string(view.format) << " tokens " << tokens << " element " << i << ": "
              << got[i] << " for " << expected[i];
        }
      }
    }
  }
}

// The definition against decoded weights and the inputs that the blocks stand for, in double.
void expect_product_of_rounded_inputs(std::size_t digits, double most_rounding) {
  std::uint32_t seed = 100;
  constexpr std::size_t kCols = 1024;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!code_shape(format)) continue;
    const TestMatrix matrix(format, 6, kCols, Values::kUsual, 0, ++seed);
    const std::vector<float> x = random_values(kCols, seed);
    const Inputs inputs(reference_code_kernels(), x, kCols, digits);
    const std::vector<float> got = product(reference_code_kernels(), matrix.view(), inputs, 1);
    std::vector<float> row(kCols);
    for (std::size_t r = 0; r < 6; ++r) {
      decode_row(matrix.view(), r, row);
      double sum = 0;
      double size = 0;
      for (std::size_t c = 0; c < kCols; ++c) {
        const double input = inputs.value(c);
        EXPECT_LE(std::fabs(input - x[c]), inputs.blocks[c / 32 * digits].scale * most_rounding);
        sum += row[c] * input;
        size += std::fabs(row[c] * input);
      }
      // Products of biases, much larger than the weights, cancel: 2^-15 of the sizes covers them.
      // Scales whose product is subnormal lose bits.
      EXPECT_NEAR(got[r], sum, size * 0x1p-15 + double{std::numeric_limits<float>::min()})
          << to_string(format) << " row " << r;
    }
  }
}

TEST(CodeDefinition, IsTheProductOfTheRoundedInputs) {
  expect_product_of_rounded_inputs(1, 0.5001);
}
// Half a unit, and one where the low digit would be -128.
TEST(CodeDefinition, IsTheProductOfTheRoundedInputsWithTwoDigits) {
  expect_product_of_rounded_inputs(2, 1.51);
}

// The least one by which no code is beyond the largest.
TEST(CodeDefinition, TwoDigitsAreScaledByAPowerOfTwo) {
  const float limit = largest_code(2);
  for (int e = -110; e <= 127; ++e) {
    for (const float size : {1.0F, 1.5F, limit / 16384, std::nextafter(limit / 16384, 2.0F),
                             std::nextafter(2.0F, 0.0F)}) {
      const float largest = std::ldexp(size, e);
      const InputScale scale = input_scale(largest, 2);
      EXPECT_EQ(scale.scale, std::exp2(scale.exponent)) << largest;
      EXPECT_EQ(scale.scale * scale.factor, 1.0F) << largest;
      EXPECT_LE(largest * scale.factor, limit) << largest;
      EXPECT_GT(2 * largest * scale.factor, limit) << largest;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, CodeKernelsTest,
                         testing::Combine(testing::ValuesIn(test::levels_to_test()),
                                          testing::Values(std::size_t{1}, std::size_t{2})),
                         [](const auto& level) {
                           return std::string(cpu_level_name(std::get<0>(level.param))) +
                                  (std::get<1>(level.param) == 1 ? "" : "TwoDigits");
                         });

}  // namespace
}  // namespace moepack::code_kernels_test
