// Tiled products of prompts against sums in double over decode_row's weights.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "formats/base/bytes.h"
#include "runtime/vulkan/weight_kernels.h"
#include "shaders/half_rows_args.h"
#include "shaders/matmul_args.h"
#include "tests/runtime/vulkan/product_matrices.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"
#include "tests/support/exact_product.h"

namespace moepack::matmul_test {
namespace {

using test::exact_product;
using test::ExactProduct;
using test::product_formats;
using test::product_kernel_name;
using test::random_inputs;
using test::TestMatrix;
using test::Values;

class MatmulTest : public VulkanTest {
 protected:
  struct Product {
    std::vector<float> y;  // [tokens, stride]
    std::size_t stride;
  };

  // x: [tokens, x_stride]; y begins as `start` and has a stride of rows + 3.
  static Product multiply(const QMatrixView& w, const std::vector<float>& x, std::uint32_t x_stride,
                          std::uint32_t tokens, float start, bool add,
                          const ProductTile& tile = test::kUsualTile) {
    const std::size_t stride = w.rows + 3;
    const DeviceBuffer codes = put(test::component_bytes(w, Component::kCodes));
    const DeviceBuffer scales = put(test::component_bytes(w, Component::kScales));
    const DeviceBuffer biases = put(test::component_bytes(w, Component::kBiases));
    const DeviceBuffer tables = put(weight_tables());
    const DeviceBuffer inputs = put(x);
    const DeviceBuffer outputs = put(std::vector<float>(tokens * stride, start));
    const VulkanKernel& product = kernel(product_kernel_name("matmul", w.format),
                                         test::product_constants(w.format, w.cols, 0, tile));
    CommandList list(device());
    list.dispatch(product,
                  shader::MatmulArgs{.codes = codes.address(),
                                     .scales = scales.address(),
                                     .biases = biases.address(),
                                     .tables = tables.address(),
                                     .x = inputs.address(),
                                     .x_scales = 0,
                                     .y = outputs.address(),
                                     .outputs = static_cast<std::uint32_t>(w.rows),
                                     .rows = tokens,
                                     .x_stride = x_stride,
                                     .y_stride = static_cast<std::uint32_t>(stride),
                                     .add = add ? 1U : 0U},
                  {(static_cast<std::uint32_t>(w.rows) + tile.outputs - 1) / tile.outputs,
                   (tokens + tile.tokens - 1) / tile.tokens, 1});
    run(list);
    return {get<float>(outputs, tokens * stride), stride};
  }

  static void expect_product(const WeightFormat& format, std::uint64_t rows, std::uint64_t cols,
                             std::uint32_t tokens, bool add,
                             const ProductTile& tile = test::kUsualTile) {
    SCOPED_TRACE(to_string(format) + " " + std::to_string(rows) + "x" + std::to_string(cols) +
                 " tokens " + std::to_string(tokens));
    const TestMatrix matrix(format, rows, cols, Values::kUsual, 1, 7);
    const auto x_stride = static_cast<std::uint32_t>(cols + 4);
    const std::vector<float> x = random_inputs(tokens, cols, x_stride, 11);
    const float start = add ? 0.5F : std::numeric_limits<float>::quiet_NaN();
    const Product product = multiply(matrix.view(), x, x_stride, tokens, start, add, tile);
    const ExactProduct exact = exact_product(matrix.view(), x.data(), x_stride, tokens);
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint64_t r = 0; r < product.stride; ++r) {
        const float y = product.y[t * product.stride + r];
        if (r >= rows) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(y), std::bit_cast<std::uint32_t>(start))
              << "written behind row " << t;
          continue;
        }
        const std::size_t at = t * rows + r;
        const double wanted = exact.value[at] + (add ? 0.5 : 0.0);
        const double bound = test::sum_bound(cols, exact.magnitude[at] + 0.5);
        ASSERT_NEAR(y, wanted, bound) << "token " << t << " row " << r;
      }
    }
  }
};

TEST_F(MatmulTest, EveryFormatEqualsSumsInDouble) {
  for (const WeightFormat& format : product_formats()) {
    expect_product(format, 70, test::fitting_cols(format, 384), 67, false);
  }
}

// Tiles of few outputs, whose columns are shared out.
TEST_F(MatmulTest, SmallTiles) {
  const ProductTile tile = dense_tile(256, 512, false);
  EXPECT_EQ(tile.outputs, 32U);
  for (const WeightFormat& format :
       {WeightFormat{.id = QFormatId::kQ8, .group_size = 64}, WeightFormat{.id = QFormatId::kF32},
        WeightFormat{.id = QFormatId::kQ2K}, WeightFormat{.id = QFormatId::kIq3Xxs}}) {
    expect_product(format, 40, test::fitting_cols(format, 384), 35, true, tile);
  }
  expect_product({.id = QFormatId::kBf16}, 33, 37, 1, false, tile);
}

TEST_F(MatmulTest, AwkwardShapes) {
  const WeightFormat q4{.id = QFormatId::kQ4, .group_size = 32};
  const WeightFormat bf16{.id = QFormatId::kBf16};
  expect_product(q4, 1, 32, 9, false);
  expect_product(q4, 64, 96, 64, true);
  expect_product(q4, 130, 128, 1, true);
  expect_product(bf16, 3, 1, 2, false);
  expect_product(bf16, 65, 37, 130, true);
  expect_product(bf16, 33, 100, 15, false);
}

TEST_F(MatmulTest, ARowDependsOnNoOther) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 64};
  const TestMatrix matrix(format, 90, 256, Values::kUsual, 1, 3);
  std::vector<float> x = random_inputs(100, 256, 256, 5);
  const Product many = multiply(matrix.view(), x, 256, 100, 0, false);
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i / 256 != 70) x[i] = std::numeric_limits<float>::infinity();
  }
  const Product among_others = multiply(matrix.view(), x, 256, 100, 0, false);
  const std::vector<float> alone_x(x.begin() + 70 * 256, x.begin() + 71 * 256);
  const Product alone = multiply(matrix.view(), alone_x, 256, 1, 0, false);
  for (std::size_t r = 0; r < 90; ++r) {
    EXPECT_EQ(many.y[70 * many.stride + r], alone.y[r]) << r;
    EXPECT_EQ(among_others.y[70 * many.stride + r], alone.y[r]) << r;
  }
}

TEST_F(MatmulTest, InfinitiesAndNanGoThrough) {
  const WeightFormat format{.id = QFormatId::kBf16};
  const float inf = std::numeric_limits<float>::infinity();
  const std::uint64_t cols = 40;
  std::vector<std::byte> codes;
  for (std::uint64_t c = 0; c < 2 * cols; ++c) {
    std::byte raw[2];
    store_le(raw, f32_to_bf16(c < cols ? 1.0F : (c == cols + 38 ? inf : 0.0F)));
    codes.insert(codes.end(), raw, raw + 2);
  }
  QMatrixView w{.format = format, .rows = 2, .cols = cols};
  w.data.codes() = codes.data();
  std::vector<float> x(4 * cols, 1.0F);
  x[0 * cols + 3] = inf;
  x[1 * cols + 39] = -inf;
  x[2 * cols + 7] = std::numeric_limits<float>::quiet_NaN();
  const Product product = multiply(w, x, cols, 4, 0, false);
  const auto y = [&](std::size_t t, std::size_t r) { return product.y[t * product.stride + r]; };
  EXPECT_EQ(y(0, 0), inf);
  EXPECT_TRUE(std::isnan(y(0, 1)));  // infinity times a weight of zero
  EXPECT_EQ(y(1, 0), -inf);
  EXPECT_TRUE(std::isnan(y(2, 0)));
  EXPECT_EQ(y(3, 0), 40.0F);
  EXPECT_EQ(y(3, 1), inf);
}

TEST_F(MatmulTest, HalfRowsKeepElevenBitsOfEveryRow) {
  const std::uint32_t cols = 45;
  const std::uint32_t stride = 64;
  const std::vector<float> factors = {1.0F, 1e30F, 1e-20F, 0.0F, 3e38F, 1e-38F};
  const auto rows = static_cast<std::uint32_t>(factors.size());
  std::vector<float> x = random_inputs(rows + 1, cols, cols, 9);
  for (std::size_t i = 0; i < rows * cols; ++i) x[i] *= factors[i / cols] * 0.25F;
  x[rows * cols + 5] = std::numeric_limits<float>::infinity();
  const DeviceBuffer inputs = put(x);
  const DeviceBuffer halves = put(std::vector<std::uint16_t>((rows + 1) * stride, 0xffff));
  const DeviceBuffer scales = make((rows + 1) * 4);
  const VulkanKernel& convert = kernel("half_rows", {64});
  CommandList list(device());
  list.dispatch(convert,
                shader::HalfRowsArgs{.x = inputs.address(),
                                     .y = halves.address(),
                                     .scales = scales.address(),
                                     .cols = cols,
                                     .x_stride = cols,
                                     .y_stride = stride},
                {rows + 1, 1, 1});
  run(list);
  const auto half = get<std::uint16_t>(halves, (rows + 1) * stride);
  const auto scale = get<float>(scales, rows + 1);
  for (std::uint32_t r = 0; r < rows; ++r) {
    float most = 0;
    for (std::uint32_t c = 0; c < cols; ++c) most = std::max(most, std::fabs(x[r * cols + c]));
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale[r], &exponent), 0.5F);
    for (std::uint32_t c = 0; c < stride; ++c) {
      const float value = f16_to_f32(half[r * stride + c]);
      const float wanted = c < cols ? x[r * cols + c] : 0.0F;
      ASSERT_NEAR(static_cast<double>(value) * scale[r], wanted,
                  std::max(std::fabs(wanted) * 0x1p-11, most * 0x1p-38) +
                      (most < 1e-30F ? static_cast<double>(most) : 0.0))
          << r << " " << c;
    }
  }
  EXPECT_EQ(scale[rows], 1.0F);
  EXPECT_EQ(half[rows * stride + 5], 0x7c00);
}

}  // namespace
}  // namespace moepack::matmul_test
