// Queries, keys and values before attention, against the CPU's functions: norms, limits, rotation
// at far positions, and the codes in the cache to the bit.
#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/model/compute.h"
#include "shaders/attention_args.h"
#include "tests/runtime/vulkan/attention_cases.h"
#include "tests/runtime/vulkan/kernel_inputs.h"
#include "tests/runtime/vulkan/vulkan_fixture.h"

namespace moepack::qk_prepare_test {
namespace {

constexpr float kEps = 1e-6F;
constexpr double kBase = 1e7;

struct QkWeights {
  std::vector<float> q_norm, k_norm, frequency;
};

QkWeights make_weights(const AttentionShape& s) {
  QkWeights w{random_values(s.is_whole_width ? s.heads * s.head_dim : s.head_dim, 1.0F, 1),
              random_values(s.is_whole_width ? s.kv_width() : s.head_dim, 1.0F, 2),
              {}};
  for (std::uint32_t i = 0; i < s.rotary_dim / 2; ++i) {
    const bool is_still = i + s.still_pairs >= s.rotary_dim / 2;
    w.frequency.push_back(is_still ? 0
                                   : static_cast<float>(std::pow(kBase, -2.0 * i / s.rotary_dim)));
  }
  return w;
}

struct Projections {
  std::vector<float> q, k, v;
};

Projections make_projections(const AttentionShape& s, std::size_t rows) {
  return {random_values(rows * s.q_width(), 2.0F, 3), random_values(rows * s.kv_width(), 2.0F, 4),
          random_values(rows * s.kv_width(), 2.0F, 5)};
}

// As runtime/model/full_attention.cpp does, in place.
void prepare_on_cpu(const AttentionShape& s, const std::vector<float>& factor, const QkWeights& w,
                    std::uint32_t position, std::uint32_t heads, std::uint32_t step, float* first) {
  std::vector<float> scratch(4096);
  Compute compute(reference_kernels(), 1, scratch);
  const std::uint32_t hd = s.head_dim;
  if (s.is_whole_width) rms_norm(compute, first, factor, kEps, 1, heads * hd, first);
  for (std::uint32_t h = 0; h < heads; ++h) {
    float* head = first + h * step;
    if (!s.is_whole_width) rms_norm(compute, head, factor, kEps, 1, hd, head);
    for (std::uint32_t i = 0; i < hd; ++i) head[i] = std::clamp(head[i], -s.clip, s.clip);
    const std::uint32_t half = s.rotary_dim / 2;
    for (std::uint32_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * w.frequency[i];
      const float a = head[i];
      const float b = head[i + half];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

class QkPrepareTest : public VulkanTest {
 protected:
  struct Prepared {
    std::vector<float> q;
    std::vector<std::vector<std::byte>> caches;  // by slice
  };

  // The caches have `context` positions of 0x55 bytes before.
  static Prepared prepare(const AttentionShape& s, KvEncoding encoding, const TestBatch& batch,
                          const Projections& p, const QkWeights& w, std::uint32_t context) {
    const DeviceBuffer rows = put(batch.rows);
    const DeviceBuffer q = put(p.q);
    const DeviceBuffer k = put(p.k);
    const DeviceBuffer v = put(p.v);
    const DeviceBuffer q_norm = put(w.q_norm);
    const DeviceBuffer k_norm = put(w.k_norm);
    const DeviceBuffer frequency = put(w.frequency.empty() ? std::vector<float>{0} : w.frequency);
    const std::size_t bytes = std::size_t{context} * 2 * s.kv_width() * kv_value_bytes(encoding);
    std::vector<DeviceBuffer> caches;
    std::vector<std::uint64_t> addresses;
    for (std::size_t i = 0; i < batch.slices.size(); ++i) {
      caches.push_back(put(std::vector<std::byte>(bytes, std::byte{0x55})));
      addresses.push_back(caches.back().address());
    }
    const DeviceBuffer cache_table = put(addresses);
    const shader::QkPrepareArgs args{.rows = rows.address(),
                                     .q = q.address(),
                                     .k = k.address(),
                                     .v = s.values_are_keys ? k.address() : v.address(),
                                     .q_norm = q_norm.address(),
                                     .k_norm = k_norm.address(),
                                     .inverse_frequency = frequency.address(),
                                     .bias = 0,
                                     .caches = cache_table.address(),
                                     .q_stride = s.q_width(),
                                     .q_step = s.q_step(),
                                     .k_stride = s.kv_width(),
                                     .v_stride = s.kv_width(),
                                     .num_heads = s.heads,
                                     .kv_heads = s.kv_heads,
                                     .rotary_dim = s.rotary_dim,
                                     .is_whole_width = s.is_whole_width ? 1U : 0U,
                                     .eps = kEps,
                                     .clip = s.clip};
    const VulkanKernel& prepare = kernel(
        "qk_prepare", {64, s.head_dim, static_cast<std::uint32_t>(encoding), 1, 0,
                       std::bit_cast<std::uint32_t>(1.0F),
                       std::bit_cast<std::uint32_t>(s.score_scale), s.has_value_norm ? 1U : 0U});
    CommandList list(device());
    list.dispatch(prepare, args,
                  {s.is_whole_width ? 3 : s.heads + 2 * s.kv_heads,
                   static_cast<std::uint32_t>(batch.rows.size()), 1});
    run(list);
    Prepared result{get<float>(q, p.q.size()), {}};
    for (const DeviceBuffer& cache : caches) result.caches.push_back(get<std::byte>(cache, bytes));
    return result;
  }

  static void check(const AttentionShape& s, KvEncoding encoding, const TestBatch& batch,
                    std::uint32_t context, double tolerance) {
    const std::size_t rows = batch.rows.size();
    const QkWeights w = make_weights(s);
    Projections p = make_projections(s, rows);
    const Prepared got = prepare(s, encoding, batch, p, w, context);
    for (std::size_t r = 0; r < rows; ++r) {
      if (batch.rows[r].live == 0) continue;
      const std::uint32_t position = batch.rows[r].position;
      float* q = p.q.data() + r * s.q_width();
      prepare_on_cpu(s, w.q_norm, w, position, s.heads, s.q_step(), q);
      for (std::uint32_t h = 0; h < s.heads; ++h) {
        for (std::uint32_t i = 0; i < s.head_dim; ++i) {
          q[h * s.q_step() + i] *=
              s.score_scale != 0 ? s.score_scale : 1.0F / std::sqrt(static_cast<float>(s.head_dim));
        }
      }
      prepare_values(s, p, r);
      prepare_on_cpu(s, w.k_norm, w, position, s.kv_heads, s.head_dim,
                     p.k.data() + r * s.kv_width());
      check_cache(s, encoding, got.caches[batch.rows[r].slice], position,
                  part(p.k, r * s.kv_width(), s.kv_width()),
                  part(p.v, r * s.kv_width(), s.kv_width()), tolerance);
    }
    EXPECT_LT(relative_error(got.q, p.q), tolerance) << s.head_dim;
  }

  // Before the keys are, which they may be.
  static void prepare_values(const AttentionShape& s, Projections& p, std::size_t row) {
    std::vector<float> scratch(4096);
    Compute compute(reference_kernels(), 1, scratch);
    float* const v = p.v.data() + row * s.kv_width();
    if (s.values_are_keys) std::copy_n(p.k.data() + row * s.kv_width(), s.kv_width(), v);
    const std::vector<float> ones(s.head_dim, 1.0F);
    if (s.has_value_norm) rms_norm(compute, v, ones, kEps, s.kv_heads, s.head_dim, v);
    for (std::uint32_t i = 0; i < s.kv_width(); ++i) v[i] = std::clamp(v[i], -s.clip, s.clip);
  }

  static void check_cache(const AttentionShape& s, KvEncoding encoding,
                          const std::vector<std::byte>& cache, std::uint32_t position,
                          const std::vector<float>& k, const std::vector<float>& v,
                          double tolerance) {
    const std::size_t bytes = s.kv_width() * kv_value_bytes(encoding);
    const auto* at = cache.data() + position * 2 * bytes;
    const std::vector<std::byte> keys(at, at + bytes);
    const std::vector<std::byte> values(at + bytes, at + 2 * bytes);
    if (!s.has_value_norm) {
      EXPECT_EQ(values, encode_kv(encoding, v));
    }
    const double rounding = encoding == KvEncoding::kFloat32    ? 0
                            : encoding == KvEncoding::kBfloat16 ? 0x1p-8
                                                                : 0x1p-11;
    EXPECT_LT(relative_error(decode_kv(encoding, keys), k), tolerance + rounding);
    EXPECT_LT(relative_error(decode_kv(encoding, values), v), tolerance + rounding);
  }
};

TEST_F(QkPrepareTest, AgreesWithTheCpu) {
  TestBatch batch;
  batch.add(0, 3);
  batch.add(2, 1, false);
  batch.add(5, 2);
  const AttentionShape shapes[] = {
      {.heads = 6, .kv_heads = 2, .head_dim = 256, .rotary_dim = 64, .has_gate = true},
      {.heads = 4, .kv_heads = 4, .head_dim = 40, .rotary_dim = 40, .is_whole_width = true},
      {.heads = 5, .kv_heads = 1, .head_dim = 8, .rotary_dim = 6, .clip = 0.75F},
      {.heads = 2, .kv_heads = 2, .head_dim = 72, .rotary_dim = 0},
  };
  for (const AttentionShape& shape : shapes) {
    for (const KvEncoding encoding : kDeviceEncodings) check(shape, encoding, batch, 8, 1e-6);
  }
}

// Values that are keys before their norm, norms of values, a scale of its own, pairs that stay.
TEST_F(QkPrepareTest, ValuesAreNormedAndMayBeKeys) {
  TestBatch batch;
  batch.add(0, 2);
  batch.add(2, 1, false);
  batch.add(5, 2);
  const AttentionShape shapes[] = {
      {.heads = 4,
       .kv_heads = 2,
       .head_dim = 512,
       .rotary_dim = 512,
       .score_scale = 1,
       .has_value_norm = true,
       .values_are_keys = true,
       .still_pairs = 192},
      {.heads = 3,
       .kv_heads = 1,
       .head_dim = 12,
       .rotary_dim = 12,
       .score_scale = 0.3F,
       .values_are_keys = true,
       .still_pairs = 3},
      {.heads = 2,
       .kv_heads = 2,
       .head_dim = 40,
       .rotary_dim = 24,
       .clip = 0.75F,
       .has_value_norm = true},
  };
  for (const AttentionShape& shape : shapes) {
    for (const KvEncoding encoding : kDeviceEncodings) check(shape, encoding, batch, 8, 1e-6);
  }
}

// Pairs with the frequency 0 keep their bits at any position.
TEST_F(QkPrepareTest, PairsThatStayKeepTheirBits) {
  const AttentionShape shape{.heads = 1,
                             .kv_heads = 1,
                             .head_dim = 64,
                             .rotary_dim = 64,
                             .score_scale = 1,
                             .still_pairs = 32};
  const Projections p = make_projections(shape, 1);
  const QkWeights w = make_weights(shape);
  std::vector<std::vector<float>> queries;
  for (const std::uint32_t position : {0U, 777U}) {
    TestBatch batch;
    batch.add(position, 1);
    queries.push_back(prepare(shape, KvEncoding::kFloat32, batch, p, w, position + 1).q);
  }
  EXPECT_EQ(queries[0], queries[1]);
}

// The angle of the first pair is the position itself.
TEST_F(QkPrepareTest, FarPositions) {
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 8, .rotary_dim = 8};
  for (const std::uint32_t position : {97U, 4095U, 262143U, 999999U}) {
    TestBatch batch;
    batch.add(position, 1);
    check(shape, KvEncoding::kFloat32, batch, position + 1, 5e-7);
  }
}

// Codes of values of every magnitude, of halves between two codes, infinite ones and NaN.
TEST_F(QkPrepareTest, CodesAreTheCpusToTheBit) {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 64, .rotary_dim = 0};
  constexpr std::uint32_t kRows = 256;
  TestBatch batch;
  batch.add(0, kRows);
  Projections p = make_projections(shape, kRows);
  std::mt19937 random(9);
  for (std::size_t i = 0; i < p.v.size(); ++i) {
    auto bits = static_cast<std::uint32_t>(random());
    if (i % 4 == 1) bits &= 0xffff8000U;                        // halves of bfloat16
    if (i % 4 == 2) bits = (bits & 0x87fff000U) + 0x30000000U;  // of float16
    if (i % 4 == 3)
      bits = (bits & 0x807fffffU) | static_cast<std::uint32_t>(random() % 40 + 96) << 23;
    const bool is_subnormal = (bits & 0x7f800000U) == 0;
    if (is_subnormal && may_flush()) bits &= 0x80000000U;
    std::memcpy(&p.v[i], &bits, 4);
  }
  for (const KvEncoding encoding : kDeviceEncodings) {
    const Prepared got = prepare(shape, encoding, batch, p, make_weights(shape), kRows);
    const std::vector<std::byte> want = encode_kv(encoding, p.v);
    const std::size_t bytes = shape.kv_width() * kv_value_bytes(encoding);
    for (std::uint32_t r = 0; r < kRows; ++r) {
      EXPECT_EQ(part(got.caches[0], (2 * r + 1) * bytes, bytes), part(want, r * bytes, bytes)) << r;
    }
  }
}

TEST_F(QkPrepareTest, LargeValuesAreNormedAndNanStays) {
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 64, .rotary_dim = 32};
  TestBatch batch;
  batch.add(3, 2);
  Projections p = make_projections(shape, 2);
  for (std::uint32_t i = 0; i < shape.head_dim; ++i) p.q[i] *= 1e30F;
  p.q[shape.head_dim + 40] = std::nanf("");
  const QkWeights w = make_weights(shape);
  const Prepared got = prepare(shape, KvEncoding::kFloat32, batch, p, w, 8);
  std::vector<float> want = part(p.q, 0, shape.head_dim);
  prepare_on_cpu(shape, w.q_norm, w, 3, 1, shape.head_dim, want.data());
  for (float& x : want) x /= 8.0F;
  EXPECT_LT(relative_error(part(got.q, 0, shape.head_dim), want), 1e-6);
  EXPECT_TRUE(std::isnan(got.q[shape.head_dim + 40]));
}

}  // namespace
}  // namespace moepack::qk_prepare_test
