// The kernels of latent attention against the definition in double: products of heads with their
// own rows of matrices of every format, and attention over compressed rows, split and in tiles.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/vulkan/mixer_shapes.h"
#include "shaders/latent_args.h"
#include "tests/runtime/vulkan/attention_cases.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/weight_fixture.h"

namespace moepack::latent_kernels_test {
namespace {

using test::TestMatrix;
using test::Values;

// Heads of `plain` rows of keys and `values` rows of values.
struct HeadRows {
  std::uint32_t heads = 3;
  std::uint32_t plain = 21;
  std::uint32_t values = 37;

  std::uint32_t rows() const { return plain + values; }
};

class LatentKernelsTest : public WeightTest {
 protected:
  struct HeadCase {
    HeadRows shape;
    QMatrixView view;
    std::uint64_t shift = 0;
    std::uint32_t tokens = 6;
    std::uint32_t at_once = 4;
    std::uint32_t first_head = 1;  // of the piece; what lies before stays as it is
    bool absorbs = true;
    float scale = 0.37F;

    std::uint32_t taken() const { return absorbs ? shape.plain : shape.values; }
    std::uint32_t cols() const { return static_cast<std::uint32_t>(view.cols); }
    std::uint32_t inputs() const { return absorbs ? shape.plain : cols(); }
    std::uint32_t outputs() const { return absorbs ? cols() : shape.values; }
  };

  // y [tokens, heads, outputs], 7 where nothing was written.
  static std::vector<float> multiply(const HeadCase& c, const std::vector<float>& x) {
    const StoredMatrix w = store(c.view, c.shift);
    const std::uint64_t row_bytes = matrix_bytes(c.view.format, 1, c.view.cols).value().codes();
    const auto moved = [&](Component component) {
      const MatrixBytes bytes = matrix_bytes(c.view.format, c.view.rows, c.view.cols).value();
      return w.address(component) +
             std::uint64_t{c.first_head} * c.shape.rows() * (bytes[component] / c.view.rows);
    };
    WeightRows rows = w.rows;
    rows.alignment = row_alignment(c.view.format, c.view.cols,
                                   c.shift + c.first_head * c.shape.rows() * row_bytes);
    const VulkanKernel& made = weight_kernel(c.absorbs ? "latent_absorb" : "latent_expand",
                                             c.view.format, latent_constants(rows, c.at_once));
    const DeviceBuffer inputs = put(x);
    const std::size_t count = std::size_t{c.tokens} * c.shape.heads * c.outputs();
    const DeviceBuffer y = put(std::vector<float>(count, 7.0F));
    CommandList list(device());
    list.dispatch(
        made,
        shader::LatentHeadArgs{.codes = moved(Component::kCodes),
                               .scales = moved(Component::kScales),
                               .biases = moved(Component::kBiases),
                               .tables = tables(),
                               .x = inputs.address(),
                               .y = y.address(),
                               .first_head = c.first_head,
                               .head_rows = c.shape.rows(),
                               .first_row = c.absorbs ? 0 : c.shape.plain,
                               .rows = c.taken(),
                               .tokens = c.tokens,
                               .x_token = c.shape.heads * c.inputs(),
                               .x_head = c.inputs(),
                               .y_token = c.shape.heads * c.outputs(),
                               .y_head = c.outputs(),
                               .scale = c.scale},
        {c.absorbs ? (c.cols() + 127) / 128 : (c.taken() + MOE_LATENT_ROWS - 1) / MOE_LATENT_ROWS,
         c.shape.heads - c.first_head, (c.tokens + c.at_once - 1) / c.at_once});
    run(list);
    return get<float>(y, count);
  }

  static std::vector<float> inputs_of(const HeadCase& c, std::uint32_t seed) {
    return random_values(std::size_t{c.tokens} * c.shape.heads * c.inputs(), 1.0F, seed);
  }

  static void expect_exact(const HeadCase& c) {
    SCOPED_TRACE(name_of(c.view.format) + (c.absorbs ? " absorb" : " expand") + " cols " +
                 std::to_string(c.view.cols) + " shift " + std::to_string(c.shift));
    const std::vector<float> x = inputs_of(c, 21);
    const std::vector<float> y = multiply(c, x);
    std::vector<std::vector<float>> w(c.view.rows, std::vector<float>(c.view.cols));
    for (std::uint64_t r = 0; r < c.view.rows; ++r) decode_row(c.view, r, w[r]);
    for (std::uint32_t t = 0; t < c.tokens; ++t) {
      for (std::uint32_t h = 0; h < c.shape.heads; ++h) {
        const float* in = x.data() + (std::size_t{t} * c.shape.heads + h) * c.inputs();
        const float* out = y.data() + (std::size_t{t} * c.shape.heads + h) * c.outputs();
        for (std::uint32_t o = 0; o < c.outputs(); ++o) {
          if (h < c.first_head) {
            ASSERT_EQ(out[o], 7.0F);
            continue;
          }
          double sum = 0;
          double size = 0;
          for (std::uint32_t i = 0; i < c.inputs(); ++i) {
            const std::uint32_t row = h * c.shape.rows() + (c.absorbs ? i : c.shape.plain + o);
            const double term =
                double{w[row][c.absorbs ? o : i]} * (c.absorbs ? in[i] * c.scale : in[i]);
            sum += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(out[o], sum, 1e-5 * size + 1e-37 + flush_bound(c.inputs(), 1))
              << t << " " << h << " " << o;
        }
      }
    }
  }

  // ---- attention ------------------------------------------------------------------------------

  struct Shape {
    std::uint32_t heads = 0;
    std::uint32_t rank = 0;
    std::uint32_t rotary = 0;

    std::uint32_t width() const { return rank + rotary; }
  };
  struct Part {
    const std::vector<float>* queries;  // of every position, [heads, width]
    const std::vector<float>* rows;     // compressed, of every position
    std::uint32_t position;
    std::uint32_t count;
    bool is_live = true;
  };

  // Attended compressed rows, [rows, heads, rank]; `splits` 0: in tiles.
  static std::vector<float> attend(const Shape& s, KvEncoding encoding,
                                   const std::vector<Part>& parts, std::uint32_t splits) {
    TestBatch batch;
    std::vector<float> queries;
    std::vector<DeviceBuffer> caches;
    std::vector<std::uint64_t> addresses;
    std::uint32_t most = 0;
    const std::size_t stride = std::size_t{s.heads} * s.width();
    for (const Part& part : parts) {
      batch.add(part.position, part.count, part.is_live);
      most = std::max(most, part.count);
      const float* q = part.queries->data() + part.position * stride;
      queries.insert(queries.end(), q, q + part.count * stride);
      caches.push_back(put(encode_kv(encoding, *part.rows)));
      addresses.push_back(caches.back().address());
    }
    const auto rows = static_cast<std::uint32_t>(batch.rows.size());
    const DeviceBuffer row_table = put(batch.rows);
    const DeviceBuffer slice_table = put(batch.slices);
    const DeviceBuffer cache_table = put(addresses);
    const DeviceBuffer latent = put(queries);
    const std::size_t results = std::size_t{rows} * s.heads * std::max(splits, 1U);
    const DeviceBuffer values = put(std::vector<float>(results * s.rank, std::nanf("")));
    const DeviceBuffer stats = put(std::vector<float>(results * 2, std::nanf("")));
    const auto code = static_cast<std::uint32_t>(encoding);
    CommandList list(device());
    const std::uint32_t heads = s.heads * (splits != 0 ? 1 : most);
    list.dispatch(kernel("latent_attend", {256, s.width(), code, s.rank, splits != 0 ? 1U : 0U}),
                  shader::LatentAttendArgs{.rows = row_table.address(),
                                           .slices = slice_table.address(),
                                           .latent = latent.address(),
                                           .caches = cache_table.address(),
                                           .values = values.address(),
                                           .stats = stats.address(),
                                           .num_heads = s.heads},
                  {(heads + MOE_LATENT_TILE - 1) / MOE_LATENT_TILE, std::max(splits, 1U),
                   splits != 0 ? rows : static_cast<std::uint32_t>(batch.slices.size())});
    if (splits != 0) {
      list.barrier();
      list.dispatch(kernel("latent_merge", {128, s.width(), code, s.rank}),
                    shader::LatentMergeArgs{.rows = row_table.address(),
                                            .values = values.address(),
                                            .stats = stats.address(),
                                            .latent = latent.address(),
                                            .splits = splits},
                    {s.heads, rows, 1});
    }
    run(list);
    const std::vector<float> all = get<float>(latent, queries.size());
    std::vector<float> attended;
    for (std::size_t at = 0; at < all.size(); at += s.width()) {
      attended.insert(attended.end(), all.data() + at, all.data() + at + s.rank);
    }
    return attended;
  }

  static std::vector<float> attend_in_double(const Shape& s, const std::vector<float>& queries,
                                             const std::vector<float>& rows,
                                             std::uint32_t position) {
    std::vector<float> out;
    for (std::uint32_t h = 0; h < s.heads; ++h) {
      const float* q = queries.data() + (std::size_t{position} * s.heads + h) * s.width();
      std::vector<double> scores;
      for (std::uint32_t j = 0; j <= position; ++j) {
        double score = 0;
        for (std::uint32_t i = 0; i < s.width(); ++i) {
          score += double{q[i]} * rows[std::size_t{j} * s.width() + i];
        }
        scores.push_back(score);
      }
      const double most = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - most);
      for (std::uint32_t i = 0; i < s.rank; ++i) {
        double value = 0;
        for (std::uint32_t j = 0; j <= position; ++j) {
          value += scores[j] * rows[std::size_t{j} * s.width() + i];
        }
        out.push_back(static_cast<float>(value / sum));
      }
    }
    return out;
  }

  static std::vector<float> queries_of(const Shape& s, std::uint32_t tokens, std::uint32_t seed) {
    return random_values(std::size_t{tokens} * s.heads * s.width(),
                         2.0F / std::sqrt(static_cast<float>(s.width())), seed);
  }

  static void check(const Shape& s, KvEncoding encoding, std::uint32_t position,
                    std::uint32_t count, std::uint32_t splits) {
    const std::uint32_t tokens = position + count;
    const std::vector<float> queries = queries_of(s, tokens, 31);
    const std::vector<float> rows = random_values(std::size_t{tokens} * s.width(), 1.0F, 32);
    const std::vector<float> kept = decode_kv(encoding, encode_kv(encoding, rows));
    std::vector<float> want;
    for (std::uint32_t t = position; t < tokens; ++t) {
      const std::vector<float> row = attend_in_double(s, queries, kept, t);
      want.insert(want.end(), row.begin(), row.end());
    }
    EXPECT_LT(
        relative_error(attend(s, encoding, {{&queries, &rows, position, count}}, splits), want),
        2e-6 * std::max(1.0, s.width() / 512.0))
        << s.heads << " heads, rank " << s.rank << " position " << position << " count " << count
        << " splits " << splits;
  }
};

TEST_F(LatentKernelsTest, HeadsMeetTheirOwnRowsOfEveryFormat) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    const bool is_plain = qformat_info(format.id).kind == QKind::kPlain;
    const std::uint64_t cols =
        is_plain ? 44 : test::fitting_cols(format, align_up(160, std::max(format.group_size, 32U)));
    HeadCase c;
    const TestMatrix matrix(format, c.shape.heads * c.shape.rows(), cols, Values::kUsual, 0, 3);
    c.view = matrix.view();
    for (const bool absorbs : {true, false}) {
      c.absorbs = absorbs;
      c.shift = absorbs ? 0 : least_shift(format);
      expect_exact(c);
    }
    if (HasFatalFailure()) return;
  }
}

// DeepSeek-V3's heads; more columns than a work group has, and than a step has.
TEST_F(LatentKernelsTest, HeadsOfRealSizes) {
  for (const WeightFormat& format :
       {WeightFormat{.id = QFormatId::kBf16}, WeightFormat{.id = QFormatId::kQ4, .group_size = 64},
        WeightFormat{.id = QFormatId::kF8E4M3}, WeightFormat{.id = QFormatId::kQ2K}}) {
    HeadCase c{.shape = {.heads = 2, .plain = 128, .values = 128}, .view = {}, .tokens = 3};
    const TestMatrix matrix(format, 512, 512, Values::kUsual, 0, 4);
    c.view = matrix.view();
    for (const bool absorbs : {true, false}) {
      c.absorbs = absorbs;
      expect_exact(c);
    }
  }
}

TEST_F(LatentKernelsTest, TokensOfAWorkGroupChangeNoBit) {
  const WeightFormat format{.id = QFormatId::kQ4, .group_size = 32};
  HeadCase c;
  const TestMatrix matrix(format, c.shape.heads * c.shape.rows(), 160, Values::kUsual, 0, 5);
  c.view = matrix.view();
  c.tokens = 35;
  for (const bool absorbs : {true, false}) {
    c.absorbs = absorbs;
    const std::vector<float> x = inputs_of(c, 22);
    c.at_once = 4;
    const std::vector<float> first = multiply(c, x);
    for (const std::uint32_t at_once : {8U, 16U, 32U}) {
      c.at_once = at_once;
      EXPECT_EQ(multiply(c, x), first) << at_once;
    }
  }
}

// Of its own token and head alone.
TEST_F(LatentKernelsTest, InfinitiesStayWithTheirTokenAndHead) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    if (format.group_size == 32) continue;
    HeadCase c;
    c.first_head = 0;
    const TestMatrix matrix(format, c.shape.heads * c.shape.rows(), test::fitting_cols(format, 128),
                            Values::kUsual, 0, 6);
    c.view = matrix.view();
    for (const bool absorbs : {true, false}) {
      SCOPED_TRACE(name_of(format) + (absorbs ? " absorb" : " expand"));
      c.absorbs = absorbs;
      std::vector<float> x = inputs_of(c, 23);
      const std::vector<float> before = multiply(c, x);
      const std::size_t bad = 4 * c.shape.heads + 1;  // token 4, head 1
      x[bad * c.inputs() + 5] = std::numeric_limits<float>::infinity();
      const std::vector<float> y = multiply(c, x);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (i / c.outputs() == bad) {
          ASSERT_FALSE(std::isfinite(y[i])) << i;
        } else {
          ASSERT_EQ(y[i], before[i]) << i;
        }
      }
    }
  }
}

// With tables and without, on devices of little shared memory.
TEST_F(LatentKernelsTest, TokensFitSharedMemory) {
  VulkanDeviceInfo info;
  const WeightRows q4{.format = {.id = QFormatId::kQ4, .group_size = 64}, .cols = 512};
  const WeightRows iq1{.format = {.id = QFormatId::kIq1S}, .cols = 512};
  info.shared_bytes = 49152;
  EXPECT_EQ(latent_tokens(q4, 512, info), 32U);
  EXPECT_EQ(latent_tokens(iq1, 512, info), 32U);
  EXPECT_EQ(latent_tokens(q4, 5, info), 8U);
  EXPECT_EQ(latent_tokens(q4, 1, info), 4U);
  info.shared_bytes = 32768;
  EXPECT_EQ(latent_tokens(q4, 512, info), 32U);
  EXPECT_EQ(latent_tokens(iq1, 512, info), 16U);
  info.shared_bytes = 16384;
  EXPECT_EQ(latent_tokens(q4, 512, info), 16U);
}

TEST_F(LatentKernelsTest, AttentionAgreesWithTheDefinition) {
  const Shape shapes[] = {{.heads = 5, .rank = 12, .rotary = 8},
                          {.heads = 33, .rank = 148, .rotary = 12},
                          {.heads = 3, .rank = 1024, .rotary = 64}};
  for (const Shape& s : shapes) {
    for (const std::uint32_t splits : {0U, 1U, 3U}) {
      check(s, KvEncoding::kBfloat16, 0, 1, splits);
      check(s, KvEncoding::kBfloat16, 31, 2, splits);
      check(s, KvEncoding::kBfloat16, 130, 7, splits);
    }
    check(s, KvEncoding::kFloat32, 61, 20, 0);
  }
  check(shapes[1], KvEncoding::kFloat32, 77, 3, 5);
  check(shapes[1], KvEncoding::kFloat16, 77, 3, 5);
  check(shapes[0], KvEncoding::kFloat16, 0, 70, 0);
}

// DeepSeek-V3's: 128 heads, rows of 512 and 64 values.
TEST_F(LatentKernelsTest, AttentionOfRealSizes) {
  const Shape s{.heads = 128, .rank = 512, .rotary = 64};
  check(s, KvEncoding::kBfloat16, 100, 2, 0);
  check(s, KvEncoding::kBfloat16, 200, 1, latent_splits(s.heads, 4096));
  EXPECT_EQ(latent_splits(128, 4096), 32U);
  EXPECT_EQ(latent_splits(128, 100), 4U);
  EXPECT_EQ(latent_splits(4, 1U << 20), 64U);
}

TEST_F(LatentKernelsTest, BitsOfARowDependOnItsSequenceAlone) {
  const Shape s{.heads = 5, .rank = 44, .rotary = 8};
  const std::vector<float> queries = queries_of(s, 150, 41);
  const std::vector<float> others = queries_of(s, 150, 42);
  const std::vector<float> rows = random_values(std::size_t{150} * s.width(), 1.0F, 43);
  const std::size_t width = std::size_t{s.heads} * s.rank;
  for (const std::uint32_t splits : {0U, 5U}) {
    const auto whole = attend(s, KvEncoding::kBfloat16, {{&queries, &rows, 0, 150}}, splits);
    std::vector<float> pieces;
    for (const auto& [position, count] : {std::pair{0U, 1U}, {1U, 63U}, {64U, 5U}, {69U, 81U}}) {
      const auto got = attend(s, KvEncoding::kBfloat16,
                              {{&others, &rows, 3, 7},
                               {&others, &rows, 9, 2, false},
                               {&queries, &rows, position, count}},
                              splits);
      const auto mine = part(got, 9 * width, count * width);
      pieces.insert(pieces.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(pieces, whole) << splits;
  }
}

TEST_F(LatentKernelsTest, LaterPositionsAreNeverSeen) {
  const Shape s{.heads = 5, .rank = 44, .rotary = 8};
  const std::vector<float> queries = queries_of(s, 100, 44);
  const std::vector<float> rows = random_values(std::size_t{100} * s.width(), 1.0F, 45);
  std::vector<float> bad = rows;
  for (std::size_t i = 60 * s.width(); i < bad.size(); ++i) {
    bad[i] = i % 2 == 0 ? std::nanf("") : std::numeric_limits<float>::infinity();
  }
  const std::size_t width = std::size_t{s.heads} * s.rank;
  for (const std::uint32_t splits : {0U, 3U}) {
    const auto good = attend(s, KvEncoding::kFloat32, {{&queries, &rows, 40, 30}}, splits);
    const auto got = attend(s, KvEncoding::kFloat32, {{&queries, &bad, 40, 30}}, splits);
    EXPECT_EQ(part(got, 0, 20 * width), part(good, 0, 20 * width));
    for (std::size_t i = 20 * width; i < 30 * width; ++i) ASSERT_FALSE(std::isfinite(got[i]));
  }
}

}  // namespace
}  // namespace moepack::latent_kernels_test
