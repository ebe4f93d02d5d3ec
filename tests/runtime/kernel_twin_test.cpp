// Every kernel table against the same operation in double, on awkward shapes, and the promises of
// runtime/model/kernels.h about what a result may depend on.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "formats/weights/qcodec.h"
#include "runtime/model/kernels.h"
#include "tests/support/exact_product.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/test_matrix.h"

namespace moepack::kernel_twin_test {
namespace {

using test::all_weight_formats;
using test::exact_product;
using test::ExactProduct;
using test::fitting_cols;
using test::GuardedFloats;
using test::product_bound;
using test::TestMatrix;
using test::Values;

constexpr double kUnit = 0x1p-24;  // half an ulp of 1: the relative error of one rounding
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Table { kReference, kAvx2, kAvx512, kAvx512Vnni, kNeon };

Result<const Kernels*> find_table(Table table) {
  if (table == Table::kReference) return &reference_kernels();
  if (table == Table::kNeon) return cpu_kernels(CpuLevel::kNeon);
  if (table == Table::kAvx512Vnni) return cpu_kernels(CpuLevel::kAvx512Vnni);
  return cpu_kernels(table == Table::kAvx2 ? CpuLevel::kAvx2 : CpuLevel::kAvx512);
}

// Of the architecture that the tests were built for.
std::vector<Table> tables_to_test() {
#if defined(__aarch64__)
  return {Table::kReference, Table::kNeon};
#else
  return {Table::kReference, Table::kAvx2, Table::kAvx512, Table::kAvx512Vnni};
#endif
}

std::string table_name(const testing::TestParamInfo<Table>& info) {
  constexpr const char* kNames[] = {"Reference", "Avx2", "Avx512", "Avx512Vnni", "Neon"};
  return kNames[static_cast<std::size_t>(info.param)];
}

class KernelTwin : public testing::TestWithParam<Table> {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = find_table(GetParam());
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = found.value();
  }

  // Reference: one regime. SIMD: products of few tokens with affine codes or blocks take a path of
  // their own.
  bool same_regime(const WeightFormat& format, std::size_t a, std::size_t b) const {
    const bool is_plain = qformat_info(format.id).kind == QKind::kPlain;
    return GetParam() == Table::kReference || is_plain || (a <= 6) == (b <= 6);
  }

  // Whether inputs may be rounded to block-wise integers.
  bool in_integers(const WeightFormat& format, std::size_t tokens) const {
    return GetParam() == Table::kAvx512Vnni && is_block(format) && tokens <= 6;
  }

  const Kernels* kernels_ = nullptr;
};

// Inputs of [tokens, cols] with NaN between the rows, which no kernel may let in.
GuardedFloats make_inputs(std::size_t tokens, std::size_t cols, std::size_t stride, float magnitude,
                          std::uint32_t seed) {
  GuardedFloats x((tokens - 1) * stride + cols, kNan);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t c = 0; c < cols; ++c) x[t * stride + c] = magnitude * uniform(random);
  }
  return x;
}

struct Product {
  std::vector<float> y;  // [tokens, stride]
  std::size_t stride;
};

// Runs matmul into memory that ends at a guard page; every element that is not asked for must keep
// its value.
Product multiply(const Kernels& kernels, const QMatrixView& w, GuardedFloats& x,
                 std::size_t x_stride, std::size_t tokens, std::uint64_t row_begin,
                 std::uint64_t row_end, std::size_t y_stride) {
  constexpr float kUntouched = -12345.0F;
  GuardedFloats y((tokens - 1) * y_stride + w.rows, kUntouched);
  GuardedFloats scratch(matmul_scratch_floats(w.cols), kNan);
  kernels.matmul(w, x.data(), x_stride, tokens, row_begin, row_end, y.data(), y_stride,
                 scratch.span());
  Product product{{y.span().begin(), y.span().end()}, y_stride};
  for (std::size_t i = 0; i < product.y.size(); ++i) {
    const std::uint64_t r = i % y_stride;
    if (r >= row_begin && r < row_end) continue;
    EXPECT_EQ(product.y[i], kUntouched) << "written outside the rows asked for, at " << i;
  }
  return product;
}

std::vector<std::uint64_t> awkward_cols(const WeightFormat& format) {
  const std::vector<std::uint64_t> all =
      is_block(format) ? std::vector<std::uint64_t>{32, 96, 128, 256, 512, 544, 640, 768, 1280}
      : is_affine(format)
          ? std::vector<std::uint64_t>{32, 64, 96, 128, 160, 256, 288, 320, 544, 640, 1056, 1152}
          : std::vector<std::uint64_t>{1, 7, 8, 15, 31, 33, 96, 511, 513, 1056};
  std::vector<std::uint64_t> fit;
  for (std::uint64_t cols : all) {
    if (matrix_bytes(format, 1, cols).has_value()) fit.push_back(cols);
  }
  return fit;
}

// The longest path of roundings of any table and regime: a chain of n/8 fused multiply-adds over
// eight lanes (reference: n/16 of two roundings), then trees, group sums, column tiles and the
// weight's own two roundings, all together below 32.
void expect_close(const Product& product, const ExactProduct& exact, std::uint64_t exact_rows,
                  const QMatrixView& w, std::size_t tokens, bool in_integers,
                  const std::string& what) {
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::uint64_t r = 0; r < w.rows; ++r) {
      const std::size_t at = t * exact_rows + r;
      const auto got = static_cast<double>(product.y[t * product.stride + r]);
      ASSERT_NEAR(got, exact.value[at], product_bound(exact, at, w.cols, in_integers))
          << what << " [" << w.rows << ", " << w.cols << "] token " << t << " of " << tokens
          << " row " << r;
    }
  }
}

TEST_P(KernelTwin, MatmulOfEveryFormatAndAwkwardShape) {
  constexpr std::size_t kMaxTokens = 33;
  constexpr std::uint64_t kMaxRows = 65;
  std::uint32_t seed = 1;
  for (const WeightFormat& format : all_weight_formats()) {
    for (std::uint64_t cols : awkward_cols(format)) {
      const std::size_t shift = seed % 2 == 0 ? 0 : 1 + seed % 3;
      const TestMatrix matrix(format, kMaxRows, cols, Values::kUsual, shift, ++seed);
      const std::size_t x_stride = cols + seed % 5;
      GuardedFloats x = make_inputs(kMaxTokens, cols, x_stride, 1.0F, ++seed);
      const ExactProduct exact = exact_product(matrix.view(), x.data(), x_stride, kMaxTokens);
      for (std::uint64_t rows : {1U, 3U, 7U, 65U}) {
        QMatrixView w = matrix.view();
        w.rows = rows;  // the first rows: the same bytes
        for (std::size_t tokens : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 33U}) {
          const Product product =
              multiply(*kernels_, w, x, x_stride, tokens, 0, rows, rows + seed % 3);
          expect_close(product, exact, kMaxRows, w, tokens, in_integers(format, tokens),
                       to_string(format));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The last row, token and column end at guard pages: a read beyond any component ends the program.
TEST_P(KernelTwin, MatmulReadsNothingBeyondItsOperands) {
  std::uint32_t seed = 500;
  for (const WeightFormat& format : all_weight_formats()) {
    for (std::uint64_t cols : awkward_cols(format)) {
      for (std::uint64_t rows : {1U, 5U}) {
        const TestMatrix matrix(format, rows, cols, Values::kUsual, 0, ++seed);
        for (std::size_t tokens : {1U, 2U, 3U, 4U, 7U}) {
          GuardedFloats x = make_inputs(tokens, cols, cols, 1.0F, ++seed);
          const ExactProduct exact = exact_product(matrix.view(), x.data(), cols, tokens);
          const Product product =
              multiply(*kernels_, matrix.view(), x, cols, tokens, 0, rows, rows);
          expect_close(product, exact, rows, matrix.view(), tokens, in_integers(format, tokens),
                       to_string(format));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(KernelTwin, MatmulOfSubnormalAndHugeValues) {
  std::uint32_t seed = 900;
  for (const WeightFormat& format : all_weight_formats()) {
    const std::uint64_t cols = fitting_cols(format, 384);
    for (const auto& [values, magnitude] : {std::pair{Values::kSubnormal, 1.0F},
                                            {Values::kSubnormal, 1e30F},
                                            {Values::kUsual, 0x1p-130F},
                                            {Values::kHuge, 1e14F}}) {
      const TestMatrix matrix(format, 9, cols, values, 1, ++seed);
      GuardedFloats x = make_inputs(5, cols, cols, magnitude, ++seed);
      const ExactProduct exact = exact_product(matrix.view(), x.data(), cols, 5);
      for (std::size_t tokens : {1U, 5U}) {
        const Product product = multiply(*kernels_, matrix.view(), x, cols, tokens, 0, 9, 9);
        expect_close(product, exact, 9, matrix.view(), tokens, in_integers(format, tokens),
                     to_string(format));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// With an input of one 1, the product is the weight itself: decoded weights are decode_row's.
TEST_P(KernelTwin, DecodedWeightsAreTheDefinitionsBits) {
  std::uint32_t seed = 1300;
  for (const WeightFormat& format : all_weight_formats()) {
    const std::uint64_t cols = 256;
    const TestMatrix matrix(format, 5, cols, Values::kUsual, 3, ++seed);
    GuardedFloats x(cols * cols);
    for (std::size_t t = 0; t < cols; ++t) x[t * cols + t] = 1.0F;
    const Product product = multiply(*kernels_, matrix.view(), x, cols, cols, 0, 5, 5);
    std::vector<float> row(cols);
    for (std::uint64_t r = 0; r < 5; ++r) {
      decode_row(matrix.view(), r, row);
      for (std::size_t c = 0; c < cols; ++c) {
        ASSERT_EQ(product.y[c * 5 + r], row[c])
            << to_string(format) << " row " << r << " col " << c;
      }
    }
  }
}

TEST_P(KernelTwin, MatmulIsBitwiseIndependentOfRowRanges) {
  std::uint32_t seed = 1700;
  for (const WeightFormat& format : all_weight_formats()) {
    const std::uint64_t rows = 29;
    const std::uint64_t cols = fitting_cols(format, 1152);
    const TestMatrix matrix(format, rows, cols, Values::kUsual, 1, ++seed);
    for (std::size_t tokens : {1U, 3U, 8U}) {
      GuardedFloats x = make_inputs(tokens, cols, cols, 1.0F, ++seed);
      const Product whole = multiply(*kernels_, matrix.view(), x, cols, tokens, 0, rows, rows);
      const std::uint64_t cuts[] = {0, 1, 3, 10, 10, 22, 29};
      for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) {
        const Product part =
            multiply(*kernels_, matrix.view(), x, cols, tokens, cuts[i], cuts[i + 1], rows);
        for (std::size_t t = 0; t < tokens; ++t) {
          for (std::uint64_t r = cuts[i]; r < cuts[i + 1]; ++r) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(part.y[t * rows + r]),
                      std::bit_cast<std::uint32_t>(whole.y[t * rows + r]))
                << to_string(format) << " rows [" << cuts[i] << ", " << cuts[i + 1] << ")";
          }
        }
      }
    }
  }
}

TEST_P(KernelTwin, MatmulIsBitwiseIndependentOfTokensWithinARegime) {
  std::uint32_t seed = 2100;
  constexpr std::size_t kCounts[] = {1, 2, 3, 4, 5, 6, 7, 12, 17};
  for (const WeightFormat& format : all_weight_formats()) {
    const std::uint64_t rows = 11;
    const std::uint64_t cols = fitting_cols(format, 640);
    const TestMatrix matrix(format, rows, cols, Values::kUsual, 0, ++seed);
    GuardedFloats x = make_inputs(17, cols, cols + 3, 1.0F, ++seed);
    std::vector<Product> products;
    for (std::size_t tokens : kCounts) {
      products.push_back(multiply(*kernels_, matrix.view(), x, cols + 3, tokens, 0, rows, rows));
    }
    for (std::size_t a = 0; a < std::size(kCounts); ++a) {
      for (std::size_t b = a + 1; b < std::size(kCounts); ++b) {
        if (!same_regime(format, kCounts[a], kCounts[b])) continue;
        for (std::size_t i = 0; i < kCounts[a] * rows; ++i) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(products[a].y[i]),
                    std::bit_cast<std::uint32_t>(products[b].y[i]))
              << to_string(format) << " " << kCounts[a] << " and " << kCounts[b] << " tokens";
        }
      }
    }
  }
}

// A weight or scale that is no number spoils its own row and nothing else.
TEST_P(KernelTwin, NanStaysInItsRow) {
  for (QFormatId id : {QFormatId::kF32, QFormatId::kF16, QFormatId::kBf16, QFormatId::kQ4}) {
    WeightFormat format{.id = id};
    if (id == QFormatId::kQ4) format.group_size = 32;
    const std::uint64_t cols = 96;
    const TestMatrix matrix(format, 6, cols, Values::kUsual, 1, 2500);
    QMatrixView w = matrix.view();
    const std::size_t row_bytes =
        is_affine(format) ? cols / 32 * 2 : cols * (id == QFormatId::kF32 ? 4 : 2);
    const Component scaling = is_affine(format) ? Component::kScales : Component::kCodes;
    const std::byte* from = w.data[scaling];
    std::vector<std::byte> changed(from, from + 6 * row_bytes);
    std::fill_n(changed.begin() + static_cast<std::ptrdiff_t>(3 * row_bytes), 4, std::byte{0xff});
    w.data[scaling] = changed.data();
    GuardedFloats x = make_inputs(7, cols, cols, 1.0F, 2501);
    for (std::size_t tokens : {1U, 7U}) {
      const Product product = multiply(*kernels_, w, x, cols, tokens, 0, 6, 6);
      for (std::size_t i = 0; i < product.y.size(); ++i) {
        EXPECT_EQ(std::isnan(product.y[i]), i % 6 == 3) << to_string(format) << " at " << i;
      }
    }
  }
}

TEST_P(KernelTwin, DotOfEveryLength) {
  std::mt19937 random(3000);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (std::size_t n = 0; n < 300; n += n < 140 ? 1 : 37) {
    GuardedFloats a(n);
    GuardedFloats b(n);
    double exact = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < n; ++i) {
      a[i] = uniform(random);
      b[i] = uniform(random);
      const double product = static_cast<double>(a[i]) * static_cast<double>(b[i]);
      exact += product;
      magnitude += std::fabs(product);
    }
    EXPECT_NEAR(static_cast<double>(kernels_->dot(a.data(), b.data(), n)), exact,
                (static_cast<double>(n) / 16 + 16) * kUnit * magnitude)
        << n;
  }
}

TEST_P(KernelTwin, AxpyOfEveryLength) {
  std::mt19937 random(3100);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (std::size_t n = 0; n < 70; ++n) {
    GuardedFloats x(n);
    GuardedFloats y(n);
    const float a = uniform(random);
    std::vector<double> exact(n);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = uniform(random);
      y[i] = uniform(random);
      exact[i] = static_cast<double>(a) * static_cast<double>(x[i]) + static_cast<double>(y[i]);
    }
    kernels_->axpy(a, x.data(), y.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(static_cast<double>(y[i]), exact[i], 2 * kUnit * 2) << n << " at " << i;
    }
  }
}

// silu(gate) * up: the exponential is good to 1.5 ulp, and sum, quotient and product round once
// each: 3 ulp of the result. Where e^-gate overflows the result is zero instead of below 2.7e-37.
TEST_P(KernelTwin, SwigluOverTheWholeRange) {
  constexpr double kRelative = 3 * 0x1p-23;
  std::vector<float> gates{0.0F,   -0.0F,  1e-42F, -1e-42F, 88.0F,
                           -87.0F, -88.5F, -89.5F, 1e30F,   -1e30F};
  for (int i = -4000; i <= 4000; ++i) gates.push_back(static_cast<float>(i) * 0.025F + 0.0013F);
  for (int i = 0; i < 2000; ++i) gates.push_back(static_cast<float>(i - 1000) * 1e-4F);
  for (std::size_t alias = 0; alias < 3; ++alias) {
    GuardedFloats gate(gates.size());
    GuardedFloats up(gates.size());
    GuardedFloats other(gates.size());
    for (std::size_t i = 0; i < gates.size(); ++i) {
      gate[i] = gates[i];
      up[i] = i % 2 == 0 ? 1.25F : -0.75F;
    }
    const std::vector<float> ups(up.span().begin(), up.span().end());
    GuardedFloats& out = alias == 0 ? other : alias == 1 ? gate : up;
    kernels_->swiglu(gate.data(), up.data(), out.data(), gates.size());
    for (std::size_t i = 0; i < gates.size(); ++i) {
      const auto g = static_cast<double>(gates[i]);
      const double exact = g / (1 + std::exp(-g)) * static_cast<double>(ups[i]);
      ASSERT_NEAR(static_cast<double>(out[i]), exact, kRelative * std::fabs(exact) + 3.4e-37)
          << "gate " << gates[i];
    }
  }
}

TEST_P(KernelTwin, SwigluOfEveryLengthAndOfNan) {
  for (std::size_t n = 1; n < 40; ++n) {
    GuardedFloats gate(n, 0.5F);
    GuardedFloats up(n, 2.0F);
    GuardedFloats out(n);
    gate[n - 1] = kNan;
    kernels_->swiglu(gate.data(), up.data(), out.data(), n);
    for (std::size_t i = 0; i + 1 < n; ++i) EXPECT_NEAR(out[i], 0.62245935F, 2e-7F) << n;
    EXPECT_TRUE(std::isnan(out[n - 1])) << n;
  }
}

// gelu(gate) * up by tanh. As above; the argument of the exponential is rounded four times.
TEST_P(KernelTwin, GegluOverTheWholeRange) {
  std::vector<float> gates{0.0F, -0.0F, 1e-42F, -1e-42F, 12.0F, -5.9F, -8.0F, 1e30F, -1e30F};
  for (int i = -4000; i <= 4000; ++i) gates.push_back(static_cast<float>(i) * 0.0025F + 0.0013F);
  for (std::size_t alias = 0; alias < 3; ++alias) {
    GuardedFloats gate(gates.size());
    GuardedFloats up(gates.size());
    GuardedFloats other(gates.size());
    for (std::size_t i = 0; i < gates.size(); ++i) {
      gate[i] = gates[i];
      up[i] = i % 2 == 0 ? 1.25F : -0.75F;
    }
    const std::vector<float> ups(up.span().begin(), up.span().end());
    GuardedFloats& out = alias == 0 ? other : alias == 1 ? gate : up;
    kernels_->geglu(gate.data(), up.data(), out.data(), gates.size());
    for (std::size_t i = 0; i < gates.size(); ++i) {
      const auto g = static_cast<double>(gates[i]);
      const double z = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
      // As 0.5 g (1 + tanh z), which would lose what is left of 1 where z is far below 0.
      const double exact = g / (1 + std::exp(-2 * z)) * static_cast<double>(ups[i]);
      const double relative = 3 * 0x1p-23 + 0x1p-21 * std::min(std::fabs(2 * z), 200.0);
      ASSERT_NEAR(static_cast<double>(out[i]), exact, relative * std::fabs(exact) + 3.4e-37)
          << "gate " << gates[i];
    }
  }
}

TEST_P(KernelTwin, GegluOfEveryLengthAndOfNan) {
  for (std::size_t n = 1; n < 40; ++n) {
    GuardedFloats gate(n, 0.5F);
    GuardedFloats up(n, 2.0F);
    GuardedFloats out(n);
    gate[n - 1] = kNan;
    kernels_->geglu(gate.data(), up.data(), out.data(), n);
    for (std::size_t i = 0; i + 1 < n; ++i) EXPECT_NEAR(out[i], 0.69142801F, 3e-7F) << n;
    EXPECT_TRUE(std::isnan(out[n - 1])) << n;
  }
}

// As above, and within the limit one more product and one more sum, of up and 1, which may cancel.
TEST_P(KernelTwin, ClampedSwigluOverTheWholeRange) {
  constexpr double kRelative = 6 * 0x1p-23;
  constexpr float kLimit = 7;
  std::vector<float> gates{0.0F, -0.0F, 7.0F, 7.5F, 1e30F, -60.0F, -1e30F};
  for (int i = -1200; i <= 600; ++i) gates.push_back(static_cast<float>(i) * 0.025F + 0.0013F);
  const std::vector<float> ups{0.0F, -0.75F, 6.5F, -6.5F, 7.0F, 8.0F, -8.0F, 1e30F, -1e30F};
  GuardedFloats gate(gates.size());
  GuardedFloats up(gates.size());
  GuardedFloats out(gates.size());
  for (const float u : ups) {
    for (std::size_t i = 0; i < gates.size(); ++i) {
      gate[i] = gates[i];
      up[i] = u;
    }
    kernels_->clamped_swiglu(gate.data(), up.data(), kLimit, out.data(), gates.size());
    for (std::size_t i = 0; i < gates.size(); ++i) {
      const double g = std::min(static_cast<double>(gates[i]), static_cast<double>(kLimit));
      const double bounded = std::clamp(static_cast<double>(u), -7.0, 7.0);
      const double exact =
          g / (1 + std::exp(-static_cast<double>(kGptOssAlpha) * g)) * (bounded + 1);
      // The argument of the exponential is rounded once.
      const double argument = std::fabs(static_cast<double>(kGptOssAlpha) * g) * 0x1p-24;
      ASSERT_NEAR(static_cast<double>(out[i]), exact,
                  (kRelative + argument) * std::fabs(exact) + 3.4e-37)
          << "gate " << gates[i] << " up " << u;
    }
  }
}

TEST_P(KernelTwin, ClampedSwigluOfEveryLengthAndOfNan) {
  for (std::size_t n = 1; n < 40; ++n) {
    for (const bool is_gate : {false, true}) {
      GuardedFloats gate(n, 0.5F);
      GuardedFloats up(n, 2.0F);
      GuardedFloats out(n);
      (is_gate ? gate : up)[n - 1] = kNan;
      kernels_->clamped_swiglu(gate.data(), up.data(), 7.0F, out.data(), n);
      for (std::size_t i = 0; i + 1 < n; ++i) EXPECT_NEAR(out[i], 1.0511653F, 1e-6F) << n;
      EXPECT_TRUE(std::isnan(out[n - 1])) << n;
    }
  }
}

struct DeltaSizes {
  std::size_t key_dim;
  std::size_t value_dim;
};

class DeltaCase {
 public:
  DeltaCase(DeltaSizes sizes, std::uint32_t seed)
      : sizes_(sizes),
        state_(sizes.key_dim * sizes.value_dim),
        q_(sizes.key_dim),
        k_(sizes.key_dim),
        v_(sizes.value_dim),
        out_(sizes.value_dim, kNan) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
    const float norm = 1.0F / std::sqrt(static_cast<float>(sizes.key_dim));
    for (float& f : state_.span()) f = uniform(random);
    for (float& f : q_.span()) f = norm * uniform(random);
    for (float& f : k_.span()) f = norm * uniform(random);
    for (float& f : v_.span()) f = uniform(random);
  }

  // One step by `kernels`, compared with the same step in double. Rounding errors are proportional
  // to the sums of absolute values, over two chains of key_dim terms.
  void check_step(const Kernels& kernels, float decay, float beta) {
    const std::vector<float> before(state_.span().begin(), state_.span().end());
    kernels.gated_delta_step(state_.data(), q_.data(), k_.data(), v_.data(), decay, beta,
                             sizes_.key_dim, sizes_.value_dim, out_.data());
    const double bound = (2 * static_cast<double>(sizes_.key_dim) + 16) * kUnit;
    for (std::size_t j = 0; j < sizes_.value_dim; ++j) check_column(before, j, decay, beta, bound);
  }

 private:
  void check_column(const std::vector<float>& before, std::size_t j, double decay, double beta,
                    double bound) {
    double u = 0;
    double u_size = 0;
    for (std::size_t i = 0; i < sizes_.key_dim; ++i) {
      const double term = decay * static_cast<double>(before[i * sizes_.value_dim + j]) * key(i);
      u += term;
      u_size += std::fabs(term);
    }
    const auto v = static_cast<double>(v_[j]);
    const double delta = beta * (v - u);
    const double delta_size = beta * (std::fabs(v) + u_size);
    double out = 0;
    double out_size = 0;
    for (std::size_t i = 0; i < sizes_.key_dim; ++i) {
      const std::size_t at = i * sizes_.value_dim + j;
      const double old = decay * static_cast<double>(before[at]);
      const double next = old + key(i) * delta;
      const double next_size = std::fabs(old) + std::fabs(key(i)) * delta_size;
      ASSERT_NEAR(static_cast<double>(state_[at]), next, bound * next_size) << i << "," << j;
      out += next * static_cast<double>(q_[i]);
      out_size += next_size * std::fabs(static_cast<double>(q_[i]));
    }
    ASSERT_NEAR(static_cast<double>(out_[j]), out, bound * out_size) << "value " << j;
  }
  double key(std::size_t i) { return static_cast<double>(k_[i]); }

  DeltaSizes sizes_;
  GuardedFloats state_;
  GuardedFloats q_;
  GuardedFloats k_;
  GuardedFloats v_;
  GuardedFloats out_;
};

TEST_P(KernelTwin, GatedDeltaStep) {
  std::uint32_t seed = 4000;
  for (std::size_t key_dim : {1U, 3U, 16U, 128U}) {
    for (std::size_t value_dim : {1U, 7U, 8U, 31U, 32U, 40U, 64U, 128U, 200U, 257U, 1024U, 1536U}) {
      SCOPED_TRACE(std::to_string(key_dim) + " x " + std::to_string(value_dim));
      DeltaCase state({key_dim, value_dim}, ++seed);
      for (float decay : {1.0F, 0.9F, 1e-6F}) {
        state.check_step(*kernels_, decay, 0.7F);
        if (HasFatalFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, KernelTwin, testing::ValuesIn(tables_to_test()), table_name);

// Every format of the table, so that a new one without a decoder or without kernels is found here.
TEST_P(KernelTwin, SupportsEveryFormatOfTheTable) {
  for (const WeightFormat& format : all_weight_formats()) {
    EXPECT_TRUE(kernels_->supports(format)) << to_string(format);
  }
  EXPECT_FALSE(kernels_->supports({QFormatId::kQ4, 48, DType::kBf16}));
  EXPECT_FALSE(kernels_->supports({QFormatId::kQ4, 64, DType::kF32}));
}

// In the reference, the number of tokens and the row range never show, in any format.
TEST(ReferenceKernels, AreBitwiseTheProductOfOneRowAndOneToken) {
  std::uint32_t seed = 5000;
  for (const WeightFormat& format : all_weight_formats()) {
    const std::uint64_t rows = 7;
    const std::uint64_t cols = fitting_cols(format, 384);
    const TestMatrix matrix(format, rows, cols, Values::kUsual, 1, ++seed);
    GuardedFloats x = make_inputs(9, cols, cols, 1.0F, ++seed);
    const Product all = multiply(reference_kernels(), matrix.view(), x, cols, 9, 0, rows, rows);
    std::vector<float> scratch(matmul_scratch_floats(cols));
    for (std::size_t t = 0; t < 9; ++t) {
      for (std::uint64_t r = 0; r < rows; ++r) {
        std::vector<float> y(rows);
        reference_kernels().matmul(matrix.view(), x.data() + t * cols, cols, 1, r, r + 1, y.data(),
                                   rows, scratch);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(y[r]),
                  std::bit_cast<std::uint32_t>(all.y[t * rows + r]))
            << to_string(format);
      }
    }
  }
}

// A buffer sized for the widest matrix must serve all narrower ones.
TEST(MatmulScratch, GrowsWithTheColumns) {
  std::size_t last = 0;
  for (std::uint64_t cols = 1; cols < 20000; cols += 17) {
    const std::size_t floats = matmul_scratch_floats(cols);
    EXPECT_GE(floats, cols);
    EXPECT_GE(floats, last);
    last = floats;
  }
}

}  // namespace
}  // namespace moepack::kernel_twin_test
