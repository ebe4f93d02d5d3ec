// The attention kernels and the caches that they read: every SIMD table against the scalar twin to
// the bit, the twin against the same in double, and the encodings against their definitions.
#include "runtime/model/attention_kernels.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "formats/base/dtype.h"
#include "runtime/model/kernels.h"
#include "runtime/model/kv_cache.h"
#include "tests/support/cpu_levels.h"
#include "tests/support/status_matchers.h"

namespace moepack::attention_kernels_test {
namespace {

constexpr std::array kEncodings{KvEncoding::kFloat32, KvEncoding::kBfloat16, KvEncoding::kFp8,
                                KvEncoding::kFloat16};

std::vector<float> random_values(std::size_t count, float magnitude, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, magnitude);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// ---- Encodings ----------------------------------------------------------------------------------

TEST(KvEncoding, E4m3IsTheNearestNumber) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-12.0F, 9.5F);
  for (int i = 0; i < 200000; ++i) {
    const float value = (i % 2 == 0 ? 1.0F : -1.0F) * std::exp2(exponent(random));
    const std::uint8_t code = e4m3_from_float(value);
    const float got = f8_e4m3_to_f32(code);
    float best = 0.0F;
    for (std::uint32_t c = 0; c < 256; ++c) {
      const float candidate = f8_e4m3_to_f32(static_cast<std::uint8_t>(c));
      if (std::fabs(candidate - value) < std::fabs(best - value)) best = candidate;
    }
    ASSERT_EQ(std::fabs(got - value), std::fabs(best - value)) << value;
    ASSERT_EQ(std::signbit(got), std::signbit(value));
  }
}

TEST(KvEncoding, E4m3RoundsHalvesToEvenAndSaturates) {
  for (std::uint32_t c = 0; c + 1 < 0x7f; ++c) {
    const float low = f8_e4m3_to_f32(static_cast<std::uint8_t>(c));
    const float high = f8_e4m3_to_f32(static_cast<std::uint8_t>(c + 1));
    EXPECT_EQ(e4m3_from_float(low), c);
    EXPECT_EQ(e4m3_from_float(-high), 0x80U + c + 1);
    EXPECT_EQ(e4m3_from_float((low + high) / 2), c % 2 == 0 ? c : c + 1) << c;
  }
  EXPECT_EQ(e4m3_from_float(464.0F), 0x7eU);
  EXPECT_EQ(e4m3_from_float(1e30F), 0x7eU);
  EXPECT_EQ(e4m3_from_float(-std::numeric_limits<float>::infinity()), 0xfeU);
}

TEST(KvEncoding, ScalesFitTheLargestValue) {
  const std::array<float, 4> values{0.5F, -896.0F, 1e-20F, 0.0F};
  EXPECT_EQ(e4m3_scale(values.data(), 4), 2.0F);
  EXPECT_EQ(e4m3_code(values[1], 2.0F), 0xfeU);
  EXPECT_EQ(e4m3_scale(values.data() + 3, 1), 0.0F);
  EXPECT_EQ(e4m3_code(0.0F, 0.0F), 0U);
  const std::array<float, 2> bad{1.0F, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(e4m3_scale(bad.data(), 2)));
  for (const KvEncoding encoding : kEncodings) {
    ASSERT_OK_AND_ASSIGN(const KvEncoding same, parse_kv_encoding(kv_encoding_name(encoding)));
    EXPECT_EQ(same, encoding);
  }
  test::expect_error(parse_kv_encoding("q8_0").status(), StatusCode::kInvalidArgument,
                     {"q8_0", "bf16"});
}

// A value as the encoding keeps it.
float kept(KvEncoding encoding, float value, float scale) {
  if (encoding == KvEncoding::kFloat32) return value;
  if (encoding == KvEncoding::kBfloat16) return bf16_to_f32(f32_to_bf16(value));
  if (encoding == KvEncoding::kFloat16) return f16_to_f32(f32_to_f16(value));
  return f8_e4m3_to_f32(e4m3_code(value, scale)) * scale;
}

// ---- Kernels ------------------------------------------------------------------------------------

struct Case {
  KvEncoding encoding;
  std::size_t head_dim;
  std::size_t context;
  std::array<std::uint32_t, kAttentionRows> seen;  // of the last block
  std::size_t rows;
  std::array<std::uint32_t, kAttentionRows> hidden{};  // of these
};

// Random keys, values and queries behind a cache of two heads.
struct Subject {
  explicit Subject(const Case& c) : of(c) {
    const std::size_t width = 2 * c.head_dim;
    keys = random_values(c.context * width, 1.0F, 1);
    values = random_values(c.context * width, 2.0F, 2);
    queries = random_values(kAttentionRows * c.head_dim, 0.4F, 3);
    cache = make_kv_cache({.heads = 2,
                           .head_dim = c.head_dim,
                           .context = c.context,
                           .format = {c.encoding, KvLayout::kBlocks}});
    EXPECT_TRUE(cache->store(0, c.context, keys.data(), values.data()).is_ok());
    for (std::size_t r = 0; r < kAttentionRows; ++r) {
      query[r] = queries.data() + r * c.head_dim;
    }
  }

  std::size_t last_block() const { return (of.context - 1) / kKvBlock; }

  // Results [rows] of the second head; what no kernel writes stays 7.
  std::vector<float> attend(const AttentionKernels& kernels) const {
    std::vector<float> results(of.rows * attention_result_floats(of.head_dim), 7.0F);
    std::vector<float> weights(kAttentionRows * kKvBlock);
    AttentionCall call;
    call.block = cache->blocks()->block(1, last_block());
    call.head_dim = of.head_dim;
    call.value_dim = of.head_dim;
    call.rows = of.rows;
    call.queries = query.data();
    call.seen = of.seen.data();
    call.hidden = of.hidden.data();
    call.results = results.data();
    call.weights = weights.data();
    kernels.attend(call);
    return results;
  }

  // The values of one row in double from what the encoding kept, and the sum of magnitudes.
  std::vector<double> exact(std::size_t row) const {
    const std::size_t hd = of.head_dim;
    std::vector<double> out(hd);
    std::vector<double> scores;
    for (std::size_t j = 0; j < of.seen[row]; ++j) {
      const bool is_hidden = j < of.hidden[row];
      scores.push_back(is_hidden ? -std::numeric_limits<double>::infinity() : score(row, j));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const double weight = std::exp(scores[j] - top);
      sum += weight;
      const float* v = values.data() + place(j);
      const float scale = e4m3_scale(v, hd);
      for (std::size_t d = 0; d < hd; ++d) out[d] += weight * kept(of.encoding, v[d], scale);
    }
    for (double& value : out) value /= sum;
    return out;
  }

  double score(std::size_t row, std::size_t j) const {
    const float* k = keys.data() + place(j);
    const float scale = e4m3_scale(k, of.head_dim);
    double sum = 0;
    for (std::size_t d = 0; d < of.head_dim; ++d) {
      sum += static_cast<double>(query[row][d]) * kept(of.encoding, k[d], scale);
    }
    return sum;
  }
  std::size_t place(std::size_t j) const {
    return ((last_block() * kKvBlock + j) * 2 + 1) * of.head_dim;
  }

  Case of;
  std::vector<float> keys;
  std::vector<float> values;
  std::vector<float> queries;
  std::array<const float*, kAttentionRows> query{};
  std::unique_ptr<KvCache> cache;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const KvEncoding encoding : kEncodings) {
    all.push_back({encoding, 256, 256, {128, 127, 128, 3, 0, 17, 64, 1}, 8});
    all.push_back({encoding, 64, 128 + 40, {40, 39, 40, 33, 32, 31, 0, 0}, 6});
    all.push_back({encoding, 24, 19, {19, 18, 1, 0, 0, 0, 0, 0}, 3});
    all.push_back({encoding, 33, 128, {100, 128, 0, 0, 0, 0, 0, 0}, 2});
    all.push_back({encoding, 96, 200, {72, 0, 0, 0, 0, 0, 0, 0}, 1});
    all.push_back({encoding, 16, 140, {0, 12, 5, 0, 9, 0, 0, 0}, 5});
    all.push_back(
        {encoding, 64, 128, {128, 127, 126, 0, 40, 33, 17, 1}, 8, {127, 64, 1, 0, 16, 32, 15, 0}});
  }
  return all;
}

TEST(ScalarAttention, IsWithinRoundingOfTheExactResult) {
  for (const Case& c : cases()) {
    const Subject subject(c);
    const std::vector<float> results = subject.attend(scalar_attention());
    for (std::size_t r = 0; r < c.rows; ++r) {
      if (c.seen[r] == 0) continue;
      const float* result = results.data() + r * attention_result_floats(c.head_dim);
      const std::vector<double> exact = subject.exact(r);
      for (std::size_t d = 0; d < c.head_dim; ++d) {
        const double got = static_cast<double>(result[kAttentionHead + d]) / result[1];
        EXPECT_NEAR(got, exact[d], 2e-5 * (1 + std::fabs(exact[d])))
            << kv_encoding_name(c.encoding) << " row " << r << " dimension " << d;
      }
    }
  }
}

class SimdAttention : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = cpu_kernels(GetParam());
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = found.value()->attention;
    ASSERT_NE(kernels_, nullptr);
  }
  const AttentionKernels* kernels_ = nullptr;
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0) << i << ": " << a[i] << ", " << b[i];
  }
}

TEST_P(SimdAttention, HasTheBitsOfItsTwin) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(std::string(kv_encoding_name(c.encoding)) + " " + std::to_string(c.head_dim));
    const Subject subject(c);
    expect_same_bits(subject.attend(*kernels_), subject.attend(scalar_attention()));
  }
}

// Fewer rows, or one alone: the bits of a row stay.
TEST_P(SimdAttention, ARowDoesNotDependOnTheOthers) {
  for (const KvEncoding encoding : kEncodings) {
    const Case all{encoding, 80, 256, {128, 100, 7, 128, 1, 50, 99, 128}, 8};
    const Subject subject(all);
    const std::vector<float> together = subject.attend(*kernels_);
    const std::size_t width = attention_result_floats(all.head_dim);
    for (std::size_t r = 0; r < all.rows; ++r) {
      Case one = all;
      one.seen = {all.seen[r]};
      one.rows = 1;
      Subject alone(one);
      alone.query[0] = subject.query[r];
      const std::vector<float> got = alone.attend(*kernels_);
      expect_same_bits(got, {together.begin() + static_cast<std::ptrdiff_t>(r * width),
                             together.begin() + static_cast<std::ptrdiff_t>((r + 1) * width)});
    }
  }
}

TEST_P(SimdAttention, MergesFinishesAndRotatesAsItsTwin) {
  for (const std::size_t hd : {1U, 7U, 24U, 64U, 100U, 256U}) {
    const std::size_t width = attention_result_floats(hd);
    std::vector<float> from = random_values(width, 1.0F, 4);
    std::vector<float> to = random_values(width, 1.0F, 5);
    from[1] = 3.5F;
    to[1] = 60.0F;
    std::vector<float> same = to;
    kernels_->merge(from.data(), hd, to.data());
    scalar_attention().merge(from.data(), hd, same.data());
    expect_same_bits(to, same);
    const std::vector<float> gate = random_values(hd, 30.0F, 6);
    for (const float* g : {gate.data(), static_cast<const float*>(nullptr)}) {
      std::vector<float> a(hd + 1, 9.0F);
      std::vector<float> b(hd + 1, 9.0F);
      kernels_->finish(to.data(), g, hd, a.data());
      scalar_attention().finish(to.data(), g, hd, b.data());
      expect_same_bits(a, b);
    }
    const std::vector<float> angles = random_values(hd, 1.0F, 7);
    std::vector<float> head = random_values(2 * hd + 1, 1.0F, 8);
    std::vector<float> twin = head;
    kernels_->rotate(head.data(), angles.data(), gate.data(), hd);
    scalar_attention().rotate(twin.data(), angles.data(), gate.data(), hd);
    expect_same_bits(head, twin);
  }
}

// A key or value that is not finite shows in the result of whoever sees it, and of nobody else.
TEST_P(SimdAttention, WhatIsNotFiniteShows) {
  for (const KvEncoding encoding : kEncodings) {
    const Case c{encoding, 64, 128, {128, 60, 0, 0, 0, 0, 0, 0}, 2};
    const Subject subject(c);
    std::vector<float> bad(2 * c.head_dim, 1.0F);
    bad[c.head_dim + 5] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> good(2 * c.head_dim, 1.0F);
    ASSERT_OK(subject.cache->store(90, 1, bad.data(), good.data()));
    const std::vector<float> results = subject.attend(*kernels_);
    EXPECT_TRUE(std::isnan(results[1]));
    EXPECT_TRUE(std::isfinite(results[attention_result_floats(c.head_dim) + 1]));
  }
}

std::string level_name(const testing::TestParamInfo<CpuLevel>& level) {
  return std::string(cpu_level_name(level.param));
}

INSTANTIATE_TEST_SUITE_P(Levels, SimdAttention, testing::ValuesIn(test::levels_to_test()),
                         level_name);

// ---- Caches -------------------------------------------------------------------------------------

// What one cache saves the other loads; rows and blocks save float32 alike.
TEST(KvCache, SavesAndLoadsInEveryEncoding) {
  constexpr std::size_t kRows = 300;
  const std::vector<float> keys = random_values(kRows * 2 * 40, 1.0F, 1);
  const std::vector<float> values = random_values(kRows * 2 * 40, 1.0F, 2);
  const auto saved_of = [](const KvCache& cache) {
    std::vector<std::byte> bytes(cache.encoded_bytes(kRows - 1));
    cache.save(kRows - 1, bytes);
    return bytes;
  };
  std::vector<std::vector<std::byte>> float_bytes;
  for (const KvFormat format : {KvFormat{KvEncoding::kFloat32, KvLayout::kRows},
                                KvFormat{KvEncoding::kFloat32, KvLayout::kBlocks},
                                KvFormat{KvEncoding::kBfloat16, KvLayout::kBlocks},
                                KvFormat{KvEncoding::kFp8, KvLayout::kBlocks},
                                KvFormat{KvEncoding::kFloat16, KvLayout::kBlocks}}) {
    const KvShape shape{.heads = 2, .head_dim = 40, .context = 400, .format = format};
    const auto cache = make_kv_cache(shape);
    ASSERT_OK(cache->store(0, 130, keys.data(), values.data()));
    ASSERT_OK(cache->store(130, 170, keys.data() + 130 * 80, values.data() + 130 * 80));
    EXPECT_LE(cache->memory_bytes(), kv_cache_bytes(shape));
    const std::vector<std::byte> saved = saved_of(*cache);
    const auto other = make_kv_cache(shape);
    ASSERT_OK(other->load(kRows - 1, saved));
    EXPECT_EQ(saved_of(*other), saved);
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<KvCache> copy, cache->copy(kRows - 1));
    EXPECT_EQ(saved_of(*copy), saved);
    if (format.encoding == KvEncoding::kFloat32) float_bytes.push_back(saved);
    const std::uint64_t value = kv_value_bytes(format.encoding);
    EXPECT_EQ(saved.size(), (kRows - 1) * 2 * (80 * value + 2 * kv_scale_bytes(format.encoding)));
  }
  EXPECT_EQ(float_bytes[0], float_bytes[1]);
  EXPECT_EQ(std::memcmp(float_bytes[0].data(), keys.data(), (kRows - 1) * 80 * 4), 0);
}

}  // namespace
}  // namespace moepack::attention_kernels_test
