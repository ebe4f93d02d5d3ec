// Products of a few rows with inputs in fixed point, against sums in double: an input may be off by
// half of its unit, 2^-16 of the largest of its 32.
#include <array>
#include <cstring>
#include <limits>

#include "shaders/matvec_fixed_args.h"
#include "shaders/router_args.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/weight_fixture.h"
#include "tests/support/exact_product.h"

namespace moepack::fixed_products_test {
namespace {

using test::TestMatrix;
using test::Values;

constexpr std::size_t kBatch = 3;
constexpr float kEpsilon = 1e-6F;

class FixedProductsTest : public WeightTest {
 protected:
  void SetUp() override {
    WeightTest::SetUp();
    if (IsSkipped()) return;
    if (!device().info().has_integer_dot) GTEST_SKIP() << "no products of integers";
  }

  // Matrices of one dispatch, their components at multiples of MOE_FIXED_UNIT.
  struct Matrices {
    DeviceBuffer buffer;
    WeightRows rows;
    shader::MatvecFixedArgs args{};
    FixedPlaces behind{};
    std::vector<std::size_t> y_at;  // floats
    std::size_t y_count = 0;
  };
  static Matrices store_all(const std::vector<const TestMatrix*>& matrices) {
    Matrices all;
    std::vector<std::byte> bytes;
    const auto append_at_unit = [&](const std::vector<std::byte>& component) {
      bytes.resize((bytes.size() + MOE_FIXED_UNIT - 1) / MOE_FIXED_UNIT * MOE_FIXED_UNIT);
      const auto at = static_cast<std::uint32_t>(bytes.size() / MOE_FIXED_UNIT);
      bytes.insert(bytes.end(), component.begin(), component.end());
      return at;
    };
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      const QMatrixView view = matrices[i]->view();
      const auto put_component = [&](Component c) {
        const std::vector<std::byte> component = test::device_bytes(view, c);
        return component.empty() ? 0U : append_at_unit(component);
      };
      all.args.codes[i] = put_component(Component::kCodes);
      all.args.scales[i] = put_component(Component::kScales);
      all.args.biases[i] = put_component(Component::kBiases);
      all.args.rows[i] = static_cast<std::uint32_t>(view.rows);
      all.y_at.push_back(all.y_count);
      if (i > 0) all.behind[i - 1] = static_cast<std::uint32_t>(all.y_count);
      all.y_count += kBatch * view.rows;
    }
    bytes.resize((bytes.size() + 3) / 4 * 4);
    all.buffer = put(bytes);
    const QMatrixView first = matrices.front()->view();
    all.rows = {.format = first.format,
                .cols = first.cols,
                .alignment = row_alignment(first.format, first.cols, MOE_FIXED_UNIT)};
    all.args.base = all.buffer.address();
    all.args.y_stride = static_cast<std::uint32_t>(first.rows);
    return all;
  }

  struct Case {
    WeightKernelShape shape;
    MatvecOptions options = {};
    std::uint32_t turns = 0;
    std::uint32_t groups = 0;  // 0: as many as cover the rows
  };
  static std::vector<float> run_matvec(const Matrices& m, const Case& c,
                                       const std::vector<float>& x,
                                       const std::vector<float>& factor,
                                       const std::vector<float>& before) {
    const VulkanKernel& made =
        weight_kernel("matvec_fixed", m.rows.format,
                      matvec_fixed_constants(m.rows, c.shape, device().info(), c.options, c.turns,
                                             kEpsilon, m.behind));
    const DeviceBuffer inputs = put(x);
    const DeviceBuffer factors = put(factor);
    const DeviceBuffer y = put(before);
    const DeviceBuffer indices = put(std::vector<std::uint32_t>{2, 0, 1});
    shader::MatvecFixedArgs args = m.args;
    args.x = inputs.address();
    args.factor = factors.address();
    args.y = y.address();
    args.indices = indices.address();
    args.tables = tables();
    const std::uint32_t at_once =
        c.shape.threads / std::min(c.shape.lanes, device().info().subgroup_size) * c.shape.rows;
    std::uint32_t groups = 0;
    for (const std::uint32_t rows : args.rows) {
      const std::uint32_t together = at_once * std::max(c.turns, 1U);
      groups += (rows + together - 1) / together;
    }
    CommandList list(device());
    list.dispatch(made, args, {c.groups != 0 ? c.groups : groups, kBatch, 1});
    run(list);
    return get<float>(y, before.size());
  }

  static std::vector<float> normed(const float* x, const std::vector<float>& factor) {
    double sum = 0;
    for (std::size_t i = 0; i < factor.size(); ++i) sum += static_cast<double>(x[i]) * x[i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(factor.size()) + kEpsilon);
    std::vector<float> out(factor.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(x[i] * scale * factor[i]);
    }
    return out;
  }
  static double bound_of(const test::ExactProduct& exact, std::size_t r, std::uint64_t cols) {
    return test::product_bound(exact, r, cols, false) + exact.peak[r] * (0.51 / 32512);
  }

  static void expect_exact(const TestMatrix& matrix, const Case& c) {
    const QMatrixView view = matrix.view();
    SCOPED_TRACE(name_of(view.format) + " cols " + std::to_string(view.cols) + " lanes " +
                 std::to_string(c.shape.lanes));
    const Matrices m = store_all({&matrix});
    ASSERT_TRUE(has_fixed_products(m.rows, 1, device().info()));
    const std::vector<float> x = random_floats(kBatch * view.cols, 2.0F, 11);
    const std::vector<float> factor = random_floats(view.cols, 1.5F, 12);
    const std::vector<float> before = random_floats(m.y_count, 1.0F, 13);
    const std::vector<float> y = run_matvec(m, c, x, factor, before);
    const std::array<std::uint32_t, kBatch> indices{2, 0, 1};
    for (std::uint32_t b = 0; b < kBatch; ++b) {
      const float* from = x.data() + (c.options.is_indexed ? indices[b] : b) * view.cols;
      const std::vector<float> in =
          c.options.has_norm ? normed(from, factor) : std::vector<float>(from, from + view.cols);
      const auto exact = test::exact_product(view, in.data(), in.size(), 1);
      for (std::size_t r = 0; r < view.rows; ++r) {
        const std::size_t at = b * view.rows + r;
        const double added = c.options.adds ? static_cast<double>(before[at]) : 0;
        ASSERT_NEAR(
            static_cast<double>(y[at]), exact.value[r] + added,
            bound_of(exact, r, view.cols) + 0x1p-22 * (std::fabs(added) + exact.magnitude[r]))
            << "batch row " << b << " row " << r;
      }
    }
  }

  // Formats that have such programs.
  static std::vector<WeightFormat> formats() {
    std::vector<WeightFormat> some;
    for (const WeightFormat& format : test::gpu_weight_formats()) {
      const WeightRows rows{.format = format, .cols = test::fitting_cols(format, 512)};
      if (has_fixed_products(rows, 1, device().info())) some.push_back(format);
    }
    return some;
  }
};

TEST_F(FixedProductsTest, EveryFormatHoweverTheWorkIsCut) {
  const std::array<WeightKernelShape, 3> shapes{
      {{.threads = 64, .lanes = 8, .rows = 1, .steps = 1},
       {.threads = 32, .lanes = 4, .rows = 3, .steps = 2},
       {.threads = 128, .lanes = 2, .rows = 2, .steps = 3}}};
  std::size_t cut = 0;
  ASSERT_GE(formats().size(), 24U);
  for (const WeightFormat& format : formats()) {
    for (const std::uint64_t least : {std::uint64_t{128}, std::uint64_t{640}}) {
      const TestMatrix matrix(format, 37, test::fitting_cols(format, least), Values::kUsual, 0, 1);
      expect_exact(matrix, {.shape = shapes[cut++ % shapes.size()]});
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(FixedProductsTest, NormsAddsAndChoosesRows) {
  for (const QFormatId id : {QFormatId::kQ4, QFormatId::kQ40, QFormatId::kQ6K}) {
    WeightFormat format{.id = id};
    if (is_affine(format)) format.group_size = 64;
    const TestMatrix matrix(format, 19, test::fitting_cols(format, 384), Values::kUsual, 0, 3);
    for (const unsigned options : {1U, 2U, 4U, 7U}) {
      expect_exact(matrix, {.shape = {.threads = 64, .lanes = 8, .rows = 1, .steps = 2},
                            .options = {.has_norm = (options & 1U) != 0,
                                        .adds = (options & 2U) != 0,
                                        .is_indexed = (options & 4U) != 0},
                            .groups = 2});
    }
  }
}

// The bits of a row depend on the lanes alone: not on what else a dispatch computes.
TEST_F(FixedProductsTest, SeveralMatricesInOneDispatchGiveWhatEachGives) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 32};
  const std::vector<std::uint64_t> rows{37, 5, 1, 18};
  std::vector<TestMatrix> matrices;
  std::vector<const TestMatrix*> together;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    matrices.emplace_back(format, rows[i], 288, Values::kUsual, 0, static_cast<std::uint32_t>(i));
  }
  together.reserve(matrices.size());
  for (const TestMatrix& matrix : matrices) together.push_back(&matrix);
  const std::vector<float> x = random_floats(kBatch * 288, 2.0F, 7);
  const std::vector<float> factor = random_floats(288, 1.0F, 8);
  Case c{.shape = {.threads = 32, .lanes = 8, .rows = 1, .steps = 1},
         .options = {.has_norm = true}};
  c.turns = 3;
  const Matrices all = store_all(together);
  const std::vector<float> y = run_matvec(all, c, x, factor, std::vector<float>(all.y_count, 7.0F));
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Matrices one = store_all({together[i]});
    Case alone{.shape = {.threads = 32, .lanes = 8, .rows = 2, .steps = 2}, .options = c.options};
    const std::vector<float> wanted =
        run_matvec(one, alone, x, factor, std::vector<float>(one.y_count));
    EXPECT_EQ(std::memcmp(wanted.data(), y.data() + all.y_at[i], wanted.size() * sizeof(float)), 0)
        << i;
  }
}

// Squares that overflow, inputs near nothing, and what is no number.
TEST_F(FixedProductsTest, ANormTakesAnyInput) {
  const WeightFormat format{.id = QFormatId::kQ8, .group_size = 32};
  const TestMatrix matrix(format, 5, 96, Values::kUsual, 0, 8);
  const Matrices m = store_all({&matrix});
  const Case c{.shape = {.threads = 64, .lanes = 8, .rows = 1, .steps = 1},
               .options = {.has_norm = true}};
  std::vector<float> x = random_floats(kBatch * 96, 1e25F, 9);
  x[96 + 5] = std::numeric_limits<float>::infinity();
  x[2 * 96 + 7] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> factor = random_floats(96, 1.0F, 10);
  const std::vector<float> y = run_matvec(m, c, x, factor, std::vector<float>(m.y_count));
  const auto exact = test::exact_product(matrix.view(), normed(x.data(), factor).data(), 96, 1);
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_NEAR(static_cast<double>(y[r]), exact.value[r], 1e-4 * exact.magnitude[r]);
    EXPECT_FALSE(std::isfinite(y[5 + r])) << r;
    EXPECT_FALSE(std::isfinite(y[10 + r])) << r;
  }
  std::fill(x.begin(), x.end(), 0.0F);
  x[3] = 1e-35F;
  const std::vector<float> none = run_matvec(m, c, x, factor, std::vector<float>(m.y_count, 1.0F));
  EXPECT_EQ(none, std::vector<float>(m.y_count));
}

// The router's logits are matvec_fixed's, to the bit; its choices are router_test's.
TEST_F(FixedProductsTest, TheRouterHasTheSameLogits) {
  const WeightFormat format{.id = QFormatId::kQ8, .group_size = 64};
  constexpr std::uint32_t kExperts = 70;
  constexpr std::uint32_t kTopK = 4;
  const TestMatrix matrix(format, kExperts, 192, Values::kUsual, 0, 3);
  const Matrices m = store_all({&matrix});
  const Case c{.shape = {.threads = 128, .lanes = 8, .rows = 1, .steps = 1},
               .options = {.has_norm = true}};
  const std::vector<float> x = random_floats(kBatch * 192, 2.0F, 15);
  const std::vector<float> factor = random_floats(192, 1.0F, 16);
  const std::vector<float> wanted = run_matvec(m, c, x, factor, std::vector<float>(m.y_count));
  std::vector<std::uint32_t> constants =
      matvec_constants(m.rows, c.shape, device().info(), c.options);
  constants.insert(constants.end(), {kExperts, kTopK});
  const VulkanKernel& made = weight_kernel("router_fixed", format, std::move(constants));
  TestBatch batch;
  batch.add(5, kBatch);
  const DeviceBuffer rows = put(batch.rows);
  const DeviceBuffer inputs = put(x);
  const DeviceBuffer factors = put(factor);
  const DeviceBuffer logits = put(std::vector<float>(kBatch * kExperts));
  const DeviceBuffer choices = put(std::vector<shader::Choice>(kBatch * kTopK));
  const DeviceBuffer row_error = put(std::vector<std::uint32_t>(kBatch, ~0U));
  const DeviceBuffer arrived = put(std::vector<std::uint32_t>(kBatch, 0));
  const std::uint32_t groups = groups_for_rows(c.shape, kExperts, device().info());
  const auto at = [&](std::uint32_t units) {
    return m.buffer.address() + std::uint64_t{units} * MOE_FIXED_UNIT;
  };
  CommandList list(device());
  list.dispatch(made,
                shader::RouterArgs{.codes = at(m.args.codes[0]),
                                   .scales = at(m.args.scales[0]),
                                   .biases = at(m.args.biases[0]),
                                   .x = inputs.address(),
                                   .factor = factors.address(),
                                   .tables = tables(),
                                   .y = logits.address(),
                                   .batch = rows.address(),
                                   .logits = logits.address(),
                                   .shared_logits = 0,
                                   .choices = choices.address(),
                                   .row_error = row_error.address(),
                                   .arrived = arrived.address(),
                                   .bias = 0,
                                   .rows = kExperts,
                                   .options = groups << MOE_ROUTER_GROUPS_AT},
                {groups, kBatch, 1});
  run(list);
  EXPECT_EQ(get<float>(logits, wanted.size()), wanted);
  const auto best = get<shader::Choice>(choices, kBatch * kTopK);
  for (std::size_t b = 0; b < kBatch; ++b) {
    const auto first = wanted.begin() + static_cast<std::ptrdiff_t>(b * kExperts);
    EXPECT_EQ(best[b * kTopK].expert,
              static_cast<std::uint32_t>(std::max_element(first, first + kExperts) - first));
  }
}

}  // namespace
}  // namespace moepack::fixed_products_test
