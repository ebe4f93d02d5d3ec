// The form of the products of prompts for cooperative matrices. Where the device has none, the same
// programs run with fragments made of ordinary arithmetic: staging, places and scales are tested
// there, the matrix instructions themselves are not.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "shaders/expert_matmul_args.h"
#include "shaders/gate_up_matmul_args.h"
#include "shaders/half_rows_args.h"
#include "shaders/matmul_args.h"
#include "tests/runtime/vulkan/product_matrices.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"
#include "tests/support/exact_product.h"

namespace moepack::cooperative_matmul_test {
namespace {

using test::exact_product;
using test::ExactProduct;
using test::TestMatrix;
using test::Values;

constexpr double kHalfUnit = 0x1p-11;  // relative error of rounding to a 16-bit float

// Inputs as half_rows makes them.
struct HalfInputs {
  DeviceBuffer rows;
  DeviceBuffer scales;
  std::uint32_t stride = 0;
};

class CooperativeMatmulTest : public VulkanTest {
 protected:
  // "_cm", or the form for devices without such matrices.
  static std::string form() { return device().info().has_cooperative_matrix ? "_cm" : "_emulated"; }

  static HalfInputs halve(CommandList& list, const VulkanKernel& convert, const DeviceBuffer& x,
                          std::uint32_t rows, std::uint32_t cols) {
    HalfInputs halves;
    halves.stride = (cols + 7) / 8 * 8;
    halves.rows = make(std::uint64_t{rows} * halves.stride * 2);
    halves.scales = make(std::uint64_t{rows} * 4);
    list.dispatch(convert,
                  shader::HalfRowsArgs{.x = x.address(),
                                       .y = halves.rows.address(),
                                       .scales = halves.scales.address(),
                                       .cols = cols,
                                       .x_stride = cols,
                                       .y_stride = halves.stride},
                  {rows, 1, 1});
    list.barrier();
    return halves;
  }
  static const VulkanKernel& half_rows() { return kernel("half_rows", {64}); }
  static const VulkanKernel& product(const std::string& operation, const WeightFormat& format,
                                     std::uint32_t cols, const ProductTile& tile,
                                     const std::vector<std::uint32_t>& more = {}) {
    std::vector<std::uint32_t> constants = test::product_constants(format, cols, 0, tile);
    constants.insert(constants.end(), more.begin(), more.end());
    return kernel(test::product_kernel_name(operation, format) + form(), std::move(constants));
  }
};

void expect_dense(const QMatrixView& w, const std::vector<float>& x, std::uint32_t tokens,
                  const std::vector<float>& y, float start) {
  const ExactProduct exact = exact_product(w, x.data(), w.cols, tokens);
  for (std::size_t at = 0; at < exact.value.size(); ++at) {
    const double bound =
        2.1 * kHalfUnit * exact.magnitude[at] + test::sum_bound(w.cols, exact.magnitude[at] + 1.0);
    ASSERT_NEAR(y[at], exact.value[at] + static_cast<double>(start), bound) << at;
  }
}

// Shapes that fit the shared memory of small devices; every one gives the same bits.
std::vector<ProductTile> dense_tiles() {
  return {dense_tile(64, 64, true), {.threads = 256, .outputs = 128, .tokens = 64}};
}

TEST_F(CooperativeMatmulTest, DenseProductsOfLargeAndSmallRows) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 32};
  const std::uint32_t outputs = 133;
  const std::uint32_t cols = 96;
  const std::uint32_t tokens = 70;
  const TestMatrix matrix(format, outputs, cols, Values::kUsual, 1, 7);
  std::vector<float> x = test::random_inputs(tokens, cols, cols, 11);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= i / cols % 3 == 0 ? 1e5F : 1e-3F;
  const QMatrixView& w = matrix.view();
  const DeviceBuffer codes = put(test::component_bytes(w, Component::kCodes));
  const DeviceBuffer scales = put(test::component_bytes(w, Component::kScales));
  const DeviceBuffer biases = put(test::component_bytes(w, Component::kBiases));
  const DeviceBuffer inputs = put(x);
  const VulkanKernel& convert = half_rows();
  std::vector<float> first;
  for (const ProductTile& tile : dense_tiles()) {
    const DeviceBuffer y = put(std::vector<float>(tokens * outputs, 0.5F));
    const VulkanKernel& matmul = product("matmul", format, cols, tile);
    CommandList list(device());
    const HalfInputs halves = halve(list, convert, inputs, tokens, cols);
    list.dispatch(
        matmul,
        shader::MatmulArgs{.codes = codes.address(),
                           .scales = scales.address(),
                           .biases = biases.address(),
                           .tables = 0,
                           .x = halves.rows.address(),
                           .x_scales = halves.scales.address(),
                           .y = y.address(),
                           .outputs = outputs,
                           .rows = tokens,
                           .x_stride = halves.stride,
                           .y_stride = outputs,
                           .add = 1},
        {(outputs + tile.outputs - 1) / tile.outputs, (tokens + tile.tokens - 1) / tile.tokens, 1});
    run(list);
    const auto given = get<float>(y, tokens * outputs);
    expect_dense(w, x, tokens, given, 0.5F);
    if (first.empty()) first = given;
    EXPECT_EQ(given, first) << tile.outputs;
  }
}

// What stands between gate and up, with g and u of their products and biases.
double activated(double g, double u, float limit) {
  if (limit == 0) return g / (1 + std::exp(-g)) * u;
  const double most = limit;
  g = std::min(g, most);
  return g / (1 + std::exp(-1.702 * g)) * (std::clamp(u, -most, most) + 1);
}

class ExpertProducts : public CooperativeMatmulTest, public ::testing::WithParamInterface<float> {};

// One expert with 70 pairs, two slots, in three tiles; pairs in falling order. With a limit also
// with biases, as gpt-oss has both.
TEST_P(ExpertProducts, AgreeWithTheDefinition) {
  const float limit = GetParam();
  const std::uint32_t has_biases = limit != 0 ? 1 : 0;
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 32};
  const std::uint32_t width = 96;
  const std::uint32_t hidden = 128;
  const std::uint32_t pairs = 70;
  const std::uint32_t slots = 2;
  const TestMatrix gate(format, width, hidden, Values::kUsual, 1, 1);
  const TestMatrix up(format, width, hidden, Values::kUsual, 1, 2);
  const TestMatrix down(format, hidden, width, Values::kUsual, 1, 3);
  std::vector<std::byte> record;
  std::vector<std::uint32_t> at;
  for (const TestMatrix* matrix : {&gate, &up, &down}) {
    for (Component c : {Component::kCodes, Component::kScales, Component::kBiases}) {
      const std::vector<std::byte> bytes = test::component_bytes(matrix->view(), c);
      at.push_back(static_cast<std::uint32_t>(record.size()));
      record.insert(record.end(), bytes.begin(), bytes.end());
    }
  }
  std::vector<std::uint32_t> order;
  for (std::uint32_t pair = pairs; pair-- > 0;) order.push_back(pair);
  const std::vector<float> x = test::random_inputs(pairs / slots, hidden, hidden, 5);

  const DeviceBuffer bytes = put(record);
  const DeviceBuffer table = put(std::vector<std::uint64_t>{bytes.address()});
  const DeviceBuffer pair_list = put(order);
  const DeviceBuffer tiles =
      put(std::vector<shader::ExpertTile>{{.expert = 0, .first = 0, .count = 32},
                                          {.expert = 0, .first = 32, .count = 32},
                                          {.expert = 0, .first = 64, .count = 6}});
  const std::vector<float> inner_bias = has_biases != 0
                                            ? test::random_inputs(1, 2 * width, 2 * width, 6)
                                            : std::vector<float>(2 * width);
  const std::vector<float> outer_bias =
      has_biases != 0 ? test::random_inputs(1, hidden, hidden, 7) : std::vector<float>(hidden);
  const DeviceBuffer inner = put(inner_bias);
  const DeviceBuffer outer = put(outer_bias);
  const DeviceBuffer inputs = put(x);
  const DeviceBuffer act = put(std::vector<float>(pairs * width));
  const DeviceBuffer result = put(std::vector<float>(pairs * hidden));
  const VulkanKernel& convert = half_rows();
  const VulkanKernel& first =
      product("gate_up_matmul", format, hidden, expert_tile(true),
              {limit != 0 ? 1U : 0U, std::bit_cast<std::uint32_t>(limit), has_biases});
  const VulkanKernel& second =
      product("expert_matmul", format, width, expert_tile(true), {has_biases});
  CommandList list(device());
  const HalfInputs x_halves = halve(list, convert, inputs, pairs / slots, hidden);
  list.dispatch(first,
                shader::GateUpMatmulArgs{.records = table.address(),
                                         .kinds = 0,
                                         .pairs = pair_list.address(),
                                         .tiles = tiles.address(),
                                         .tables = 0,
                                         .x = x_halves.rows.address(),
                                         .x_scales = x_halves.scales.address(),
                                         .act = act.address(),
                                         .bias = inner.address(),
                                         .gate_codes = at[0],
                                         .gate_scales = at[1],
                                         .gate_biases = at[2],
                                         .up_codes = at[3],
                                         .up_scales = at[4],
                                         .up_biases = at[5],
                                         .width = width,
                                         .x_stride = x_halves.stride,
                                         .slots = slots,
                                         .kind = 0},
                {(width + 63) / 64, 3, 1});
  list.barrier();
  const HalfInputs act_halves = halve(list, convert, act, pairs, width);
  list.dispatch(second,
                shader::ExpertMatmulArgs{.records = table.address(),
                                         .kinds = 0,
                                         .pairs = pair_list.address(),
                                         .tiles = tiles.address(),
                                         .tables = 0,
                                         .x = act_halves.rows.address(),
                                         .x_scales = act_halves.scales.address(),
                                         .y = result.address(),
                                         .bias = outer.address(),
                                         .codes = at[6],
                                         .scales = at[7],
                                         .biases = at[8],
                                         .outputs = hidden,
                                         .x_stride = act_halves.stride,
                                         .pairs_per_input = 1,
                                         .bias_stride = 0,
                                         .kind = 0},
                {(hidden + 127) / 128, 3, 1});
  run(list);
  const auto acts = get<float>(act, pairs * width);
  for (std::uint32_t pair = 0; pair < pairs; ++pair) {
    const float* row = x.data() + pair / slots * hidden;
    const ExactProduct g = exact_product(gate.view(), row, hidden, 1);
    const ExactProduct u = exact_product(up.view(), row, hidden, 1);
    for (std::uint32_t i = 0; i < width; ++i) {
      const double gated = g.value[i] + double{inner_bias[i]};
      const double raised = u.value[i] + double{inner_bias[width + i]};
      const double error = 2.2 * kHalfUnit;
      // Neither factor grows faster than 1.2 times its argument.
      const double bound =
          1.2 * error * g.magnitude[i] * (std::fabs(raised) + 1 + error * u.magnitude[i]) +
          1.2 * (std::fabs(gated) + 1) * error * u.magnitude[i] + 1e-6;
      ASSERT_NEAR(acts[pair * width + i], activated(gated, raised, limit), bound)
          << pair << " " << i;
    }
  }
  std::vector<float> given = get<float>(result, pairs * hidden);
  for (std::size_t i = 0; i < given.size(); ++i) given[i] -= outer_bias[i % hidden];
  expect_dense(down.view(), acts, pairs, given, 0.0F);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertProducts, ::testing::Values(0.0F, 0.7F));

}  // namespace
}  // namespace moepack::cooperative_matmul_test
