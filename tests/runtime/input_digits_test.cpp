// Two digits of the inputs of products in integers: how near they are to the inputs, and that a
// product is the sum of the products with each, to the bit, however it is divided.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/weights/qcodec.h"
#include "formats/weights/row_order.h"
#include "runtime/cpu/code_rows.h"
#include "runtime/cpu/codes_reference.h"
#include "runtime/model/input_digits.h"
#include "runtime/model/kernels.h"
#include "tests/support/panel_matrix.h"
#include "tests/support/test_matrix.h"

namespace moepack {
namespace {

using test::TestMatrix;
using test::Values;

constexpr std::size_t kCols = 768;

std::vector<float> random_inputs(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = normal(random) * std::exp(2 * normal(random));
  return x;
}

// Both digits of tokens of kCols inputs.
struct Inputs {
  explicit Inputs(const std::vector<float>& x)
      : blocks(digit_blocks(kMostDigits, kCols) * (x.size() / kCols)) {
    for (std::size_t t = 0; t < x.size() / kCols; ++t) {
      InputBlock* const token = blocks.data() + t * digit_blocks(kMostDigits, kCols);
      quantize_digits(reference_code_kernels(), kMostDigits, x.data() + t * kCols, 0, kCols, kCols,
                      token);
      rows.push_back(token);
    }
  }
  std::vector<InputBlock> blocks;
  std::vector<const InputBlock*> rows;
};

std::vector<float> product(const QMatrixView& w, std::span<const InputBlock* const> rows,
                           std::uint64_t task) {
  std::vector<float> y(rows.size() * w.rows, -1.0F);
  std::vector<float> scratch(matmul_scratch_floats(w.cols));
  for (std::uint64_t row = 0; row < w.rows; row += task) {
    multiply_digits(reference_code_kernels(), kMostDigits, w, rows.data(), rows.size(), row,
                    std::min(w.rows, row + task), y.data(), w.rows, scratch);
  }
  return y;
}

TEST(InputDigits, TogetherAreTheInputsToSixteenBitsOfTheLargest) {
  const std::vector<float> x = random_inputs(kCols, 1);
  const Inputs inputs(x);
  const InputBlock* const first = inputs.rows.front();
  const InputBlock* const second = first + input_blocks(kCols);
  double worst = 0;
  for (std::size_t i = 0; i < kCols; ++i) {
    const InputBlock& a = first[i / kInputGroup];
    const InputBlock& b = second[i / kInputGroup];
    const double sum =
        double{a.scale} * a.codes[i % kInputGroup] + double{b.scale} * b.codes[i % kInputGroup];
    worst = std::max(worst, std::fabs(sum - x[i]) / (double{a.scale} * 127));
  }
  EXPECT_LT(worst, 1.001 / (127 * 508.0));
  EXPECT_GT(worst, 0.5 / (127 * 508.0)) << "one digit more than there should be";
}

TEST(InputDigits, APartOfATokenIsQuantizedAsTheWholeIs) {
  const std::vector<float> x = random_inputs(kCols, 2);
  const Inputs whole(x);
  std::vector<InputBlock> parts(digit_blocks(kMostDigits, kCols));
  for (std::size_t begin = 0; begin < kCols; begin += 96) {
    quantize_digits(reference_code_kernels(), kMostDigits, x.data() + begin, begin, begin + 96,
                    kCols, parts.data());
  }
  for (std::size_t b = 0; b < parts.size(); ++b) {
    EXPECT_TRUE(std::equal(std::begin(parts[b].codes), std::end(parts[b].codes),
                           std::begin(whole.blocks[b].codes)))
        << b;
    EXPECT_EQ(parts[b].scale, whole.blocks[b].scale) << b;
    EXPECT_EQ(parts[b].sum, whole.blocks[b].sum) << b;
  }
}

TEST(InputDigits, ProductsAreNearTheExactOnes) {
  const std::vector<float> x = random_inputs(kCols, 3);
  const Inputs inputs(x);
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!code_shape(format)) continue;
    const TestMatrix matrix(format, 37, kCols, Values::kUsual, 0, 4);
    const std::vector<float> got = product(matrix.view(), inputs.rows, 37);
    std::vector<float> weights(kCols);
    double error = 0;
    double size = 0;
    for (std::uint64_t r = 0; r < 37; ++r) {
      decode_row(matrix.view(), r, weights);
      double exact = 0;
      double terms = 0;
      for (std::size_t c = 0; c < kCols; ++c) {
        exact += double{weights[c]} * x[c];
        terms += std::pow(double{weights[c]} * x[c], 2);
      }
      error += std::pow(got[r] - exact, 2);
      size += terms;
    }
    // One digit: .003 to .02.
    EXPECT_LT(std::sqrt(error / size), 1e-4) << to_string(format);
  }
}

TEST(InputDigits, ProductsAreTheSumsOfBothHoweverTheyAreDivided) {
  const std::size_t tokens = 35;
  const Inputs inputs(random_inputs(tokens * kCols, 5));
  std::vector<const InputBlock*> second;
  for (const InputBlock* token : inputs.rows) second.push_back(token + input_blocks(kCols));
  const auto one_digit = [&](const QMatrixView& w, const std::vector<const InputBlock*>& rows) {
    std::vector<float> y(tokens * w.rows);
    std::vector<float> scratch(matmul_scratch_floats(w.cols));
    reference_code_kernels().multiply(w, rows.data(), tokens, 0, w.rows, y.data(), w.rows, scratch);
    return y;
  };
  for (const char* name : {"q4", "q2", "q4_0", "q6_k", "iq3_xxs"}) {
    WeightFormat format{.id = *qformat_from_name(name)};
    if (qformat_info(format.id).kind == QKind::kAffine) format.group_size = 64;
    const TestMatrix matrix(format, 149, kCols, Values::kUsual, 0, 6);
    const std::vector<float> a = one_digit(matrix.view(), inputs.rows);
    const std::vector<float> b = one_digit(matrix.view(), second);
    std::vector<float> sums(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) sums[i] = a[i] + b[i];
    const test::PanelMatrix panels(matrix.view(), 0);
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, tokens}) {
      const std::span rows = std::span(inputs.rows).first(count);
      const std::vector<float> expected(sums.begin(),
                                        sums.begin() + static_cast<std::ptrdiff_t>(count * 149));
      for (const std::uint64_t task : {std::uint64_t{32}, std::uint64_t{149}}) {
        EXPECT_EQ(product(matrix.view(), rows, task), expected) << name << ' ' << count;
        EXPECT_EQ(product(panels.view(), rows, task), expected) << name << " in panels " << count;
      }
    }
  }
}

TEST(InputDigits, InputsThatAreNotFiniteMakeEveryProductNan) {
  std::vector<float> x = random_inputs(kCols, 7);
  x[700] = std::numeric_limits<float>::infinity();
  const Inputs inputs(x);
  const TestMatrix matrix({.id = QFormatId::kQ40}, 16, kCols, Values::kUsual, 0, 8);
  for (const float y : product(matrix.view(), inputs.rows, 16)) EXPECT_TRUE(std::isnan(y));
}

}  // namespace
}  // namespace moepack
