// Products of a few rows with matrices of every format, against sums in double.
#include "shaders/matvec_args.h"

#include <limits>
#include <optional>

#include "tests/runtime/vulkan/weight_fixture.h"
#include "tests/support/exact_product.h"

namespace moepack::matvec_test {
namespace {

using test::TestMatrix;
using test::Values;

constexpr std::uint32_t kBatch = 3;
constexpr float kEpsilon = 1e-6F;

struct MatvecCase {
  QMatrixView view;
  std::uint64_t shift = 0;
  WeightKernelShape shape = {};
  MatvecOptions options = {};
  std::uint32_t groups = 0;  // 0: as many as cover the rows
};

class MatvecTest : public WeightTest {
 protected:
  // y of every row of the batch. x and factor are the inputs, `before` what y held.
  static std::vector<float> run_on_device(const MatvecCase& c, const StoredMatrix& w,
                                          const std::vector<float>& x,
                                          const std::vector<float>& factor,
                                          const std::vector<float>& before) {
    const VulkanKernel& made = weight_kernel(
        "matvec", c.view.format, matvec_constants(w.rows, c.shape, device().info(), c.options));
    const DeviceBuffer inputs = put(x);
    const DeviceBuffer factors = put(factor);
    const DeviceBuffer y = put(before);
    const DeviceBuffer indices = put(std::vector<std::uint32_t>{2, 0, 1});
    CommandList list(device());
    list.dispatch(
        made,
        shader::MatvecArgs{.codes = w.address(Component::kCodes),
                           .scales = w.address(Component::kScales),
                           .biases = w.address(Component::kBiases),
                           .x = inputs.address(),
                           .factor = factors.address(),
                           .y = y.address(),
                           .added = y.address(),
                           .indices = indices.address(),
                           .tables = tables(),
                           .rows = static_cast<std::uint32_t>(c.view.rows),
                           .x_stride = stride(c.view.cols),
                           .y_stride = static_cast<std::uint32_t>(c.view.rows),
                           .eps = kEpsilon},
        {c.groups != 0 ? c.groups : groups_for_rows(c.shape, c.view.rows, device().info()), kBatch,
         1});
    run(list);
    return get<float>(y, before.size());
  }
  static std::uint32_t stride(std::uint64_t cols) {
    return static_cast<std::uint32_t>((cols + 3) / 4 * 4);
  }

  // What is multiplied with the weights, in double.
  static std::vector<float> normed(const MatvecCase& c, const float* x,
                                   const std::vector<float>& factor) {
    std::vector<float> out(x, x + c.view.cols);
    if (!c.options.has_norm) return out;
    double sum = 0;
    for (const float value : out) sum += static_cast<double>(value) * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(c.view.cols) + kEpsilon);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(out[i] * scale * factor[i]);
    }
    return out;
  }

  static void expect_exact(const MatvecCase& c, const std::string& what) {
    SCOPED_TRACE(what + " " + name_of(c.view.format) + " rows " + std::to_string(c.view.rows) +
                 " cols " + std::to_string(c.view.cols));
    const StoredMatrix w = store(c.view, c.shift);
    const std::vector<float> x = random_floats(kBatch * stride(c.view.cols), 2.0F, 11);
    const std::vector<float> factor = random_floats(stride(c.view.cols), 1.5F, 12);
    const std::vector<float> before = random_floats(kBatch * c.view.rows, 1.0F, 13);
    const std::vector<float> y = run_on_device(c, w, x, factor, before);
    const std::array<std::uint32_t, kBatch> indices{2, 0, 1};
    for (std::uint32_t b = 0; b < kBatch; ++b) {
      const std::uint32_t source = c.options.is_indexed ? indices[b] : b;
      const auto in = normed(c, x.data() + source * stride(c.view.cols), factor);
      const auto exact = test::exact_product(c.view, in.data(), in.size(), 1);
      for (std::size_t r = 0; r < c.view.rows; ++r) {
        const std::size_t at = b * c.view.rows + r;
        const double added = c.options.adds ? static_cast<double>(before[at]) : 0;
        const double bound = test::product_bound(exact, r, c.view.cols, false) +
                             0x1p-23 * (std::fabs(added) + exact.magnitude[r]) +
                             flush_bound(c.view.cols, 4);
        ASSERT_NEAR(static_cast<double>(y[at]), exact.value[r] + added, bound)
            << "batch row " << b << " row " << r;
      }
    }
  }

  // The component that holds the scales, with an infinite one in row `row`; nullopt for formats
  // whose scales are always numbers.
  static std::optional<std::vector<std::byte>> with_infinite_scale(const QMatrixView& view,
                                                                   std::uint64_t row) {
    const bool is_affine_format = is_affine(view.format);
    const Component where = is_affine_format ? Component::kScales : Component::kCodes;
    const std::uint64_t size = matrix_bytes(view.format, view.rows, view.cols).value()[where];
    std::vector<std::byte> bytes(view.data[where], view.data[where] + size);
    std::size_t at = row * size / view.rows;
    std::uint16_t infinity = 0x7c00;
    if (is_block(view.format) && !is_ggml_block(view.format)) {
      // A float32, of which the last half is left as it was: infinity or NaN; or a byte, NaN.
      if (view.format.id == QFormatId::kMxfp8) {
        bytes[at] = std::byte{0xff};
        return bytes;
      }
      at += 2;
      infinity = 0x7f80;
    } else if (is_affine_format) {
      if (view.format.scale_type == DType::kBf16) infinity = 0x7f80;
    } else if (is_block(view.format)) {
      const QFormatId id = view.format.id;
      if (id == QFormatId::kMxfp4 || id == QFormatId::kNvfp4 || id == QFormatId::kIq1M) {
        return std::nullopt;
      }
      at += test::half_fields(id).front();
    } else {
      return std::nullopt;
    }
    store_le(bytes.data() + at, infinity);
    return bytes;
  }

  static std::vector<std::uint64_t> widths(const WeightFormat& format) {
    if (qformat_info(format.id).kind == QKind::kPlain) return {1, 13, 72, 516};
    return {test::fitting_cols(format, 128), test::fitting_cols(format, 640)};
  }
};

TEST_F(MatvecTest, EveryFormatGivesTheProductHoweverTheWorkIsCut) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    std::size_t cut = 0;
    for (const std::uint64_t cols : widths(format)) {
      const TestMatrix matrix(format, 37, cols, Values::kUsual, 0, 1);
      const auto all = shapes({.format = format, .cols = cols, .alignment = 16});
      expect_exact({.view = matrix.view(), .shape = all[cut++ % all.size()]}, "usual");
      if (is_affine(format) && format.group_size != 64) continue;
      expect_exact({.view = matrix.view(), .shape = all[cut++ % all.size()]}, "usual");
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(MatvecTest, ComponentsMayLieAtOddOffsetsAndGroupsMayBeFew) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    const TestMatrix matrix(format, 37, test::fitting_cols(format, 256), Values::kUsual, 0, 2);
    const std::uint64_t least = least_shift(format);
    if (is_affine(format) && (format.group_size != 64 || format.scale_type == DType::kF16))
      continue;
    for (const std::uint64_t shift : {least, 3 * least}) {
      MatvecCase c{.view = matrix.view(), .shift = shift, .groups = 2};
      c.shape = shapes({.format = format, .cols = matrix.view().cols})[1];
      expect_exact(c, "shift " + std::to_string(shift));
    }
    if (HasFatalFailure()) return;
  }
}

TEST_F(MatvecTest, NormsAddsAndChoosesRows) {
  for (const QFormatId id :
       {QFormatId::kBf16, QFormatId::kQ4, QFormatId::kQ40, QFormatId::kQ4K, QFormatId::kIq2S}) {
    WeightFormat format{.id = id};
    if (is_affine(format)) format.group_size = 64;
    const std::uint64_t cols = id == QFormatId::kBf16 ? 77 : test::fitting_cols(format, 384);
    const TestMatrix matrix(format, 19, cols, Values::kUsual, 0, 3);
    MatvecCase c{.view = matrix.view()};
    c.shape = shapes({.format = format, .cols = cols})[0];
    for (const unsigned options : {1U, 2U, 4U, 7U}) {
      c.options = {.has_norm = (options & 1U) != 0,
                   .adds = (options & 2U) != 0,
                   .is_indexed = (options & 4U) != 0};
      expect_exact(c, "options " + std::to_string(options));
    }
  }
}

// Inputs too wide for shared memory are read where they are.
TEST_F(MatvecTest, InputsMayBeTooWideForSharedMemory) {
  for (const WeightFormat& format :
       {WeightFormat{.id = QFormatId::kBf16}, WeightFormat{.id = QFormatId::kQ4, .group_size = 64},
        WeightFormat{.id = QFormatId::kQ6K}}) {
    const std::uint64_t cols = device().info().shared_bytes / 4 + 256;
    const TestMatrix matrix(format, 3, cols / 256 * 256, Values::kUsual, 0, 4);
    MatvecCase c{.view = matrix.view(), .options = {.has_norm = true}};
    c.shape = shapes({.format = format, .cols = matrix.view().cols})[0];
    expect_exact(c, "wide");
  }
}

TEST_F(MatvecTest, SubnormalAndHugeScalesAreNumbers) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    const std::uint64_t cols = test::fitting_cols(format, 128);
    if (format.group_size == 32) continue;
    for (const Values values : {Values::kSubnormal, Values::kHuge}) {
      const TestMatrix matrix(format, 11, cols, values, 0, 5);
      MatvecCase c{.view = matrix.view()};
      c.shape = shapes({.format = format, .cols = cols})[0];
      expect_exact(c, values == Values::kHuge ? "huge" : "subnormal");
    }
    if (HasFatalFailure()) return;
  }
}

// The bits of a row do not depend on how many groups there are nor on how many rows a team takes.
TEST_F(MatvecTest, BitsDependOnLanesAlone) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 32};
  const TestMatrix matrix(format, 37, 672, Values::kUsual, 0, 6);
  const StoredMatrix w = store(matrix.view(), 0);
  const std::vector<float> x = random_floats(kBatch * 672, 2.0F, 7);
  const std::vector<float> zero(kBatch * 37);
  MatvecCase c{.view = matrix.view(), .shape = {.threads = 64, .lanes = 8}};
  const std::vector<float> first = run_on_device(c, w, x, x, zero);
  c.shape = {.threads = 128, .lanes = 8, .rows = 3, .steps = 4};
  c.groups = 1;
  EXPECT_EQ(run_on_device(c, w, x, x, zero), first);
}

// An infinity reaches every row's result where it is an input, and its own row's where it is a
// scale.
TEST_F(MatvecTest, InfinitiesGoThrough) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    if (format.group_size == 32) continue;
    SCOPED_TRACE(name_of(format));
    const std::uint64_t cols = test::fitting_cols(format, 128);
    const TestMatrix matrix(format, 3, cols, Values::kUsual, 0, 14);
    MatvecCase c{.view = matrix.view(), .shape = {.threads = 64, .lanes = 8, .rows = 1}};
    std::vector<float> x = random_floats(kBatch * cols, 2.0F, 15);
    const std::vector<float> zero(kBatch * 3);
    const StoredMatrix clean = store(c.view, 0);
    const std::vector<float> before = run_on_device(c, clean, x, x, zero);
    const std::optional<std::vector<std::byte>> scaled = with_infinite_scale(c.view, 1);
    if (scaled.has_value()) {
      MatvecCase infinite = c;
      const Component where = is_affine(format) ? Component::kScales : Component::kCodes;
      infinite.view.data[where] = scaled->data();
      const StoredMatrix w = store(infinite.view, 0);
      const std::vector<float> y = run_on_device(infinite, w, x, x, zero);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (i % 3 == 1) {
          ASSERT_FALSE(std::isfinite(y[i])) << i;
        } else {
          ASSERT_EQ(y[i], before[i]) << i;
        }
      }
    }
    x[cols + 77] = -std::numeric_limits<float>::infinity();
    const std::vector<float> y = run_on_device(c, clean, x, x, zero);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (i / 3 == 1) {
        ASSERT_FALSE(std::isfinite(y[i])) << i;
      } else {
        ASSERT_EQ(y[i], before[i]) << i;
      }
    }
  }
}

// Squares that overflow, and what is no number.
TEST_F(MatvecTest, ANormTakesAnyInput) {
  const WeightFormat format{.id = QFormatId::kQ8, .group_size = 32};
  const TestMatrix matrix(format, 5, 96, Values::kUsual, 0, 8);
  const StoredMatrix w = store(matrix.view(), 0);
  MatvecCase c{
      .view = matrix.view(), .shape = {.threads = 64, .lanes = 8}, .options = {.has_norm = true}};
  std::vector<float> x = random_floats(kBatch * 96, 1e25F, 9);
  x[96 + 5] = std::numeric_limits<float>::infinity();
  x[2 * 96 + 7] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> factor = random_floats(96, 1.0F, 10);
  const std::vector<float> y = run_on_device(c, w, x, factor, std::vector<float>(kBatch * 5));
  const auto exact = test::exact_product(c.view, normed(c, x.data(), factor).data(), 96, 1);
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_NEAR(static_cast<double>(y[r]), exact.value[r], 1e-5 * exact.magnitude[r]);
    const bool is_zero = r == 4;  // a row of zeros
    EXPECT_TRUE(std::isnan(y[5 + r]) || is_zero) << r;
    EXPECT_TRUE(std::isnan(y[10 + r])) << r;
  }
}

}  // namespace
}  // namespace moepack::matvec_test
