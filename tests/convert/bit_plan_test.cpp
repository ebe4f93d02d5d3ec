// Widths chosen from tables made by hand: sizes and predictions as counted here, the choice against
// every other one.
#include "convert/quantize/bit_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace moepack::bit_plan_test {
namespace {

// A matrix of 256 x 128 has 4096 bytes a bit and 512 groups of 4 bytes; a record fills pages.
constexpr std::uint64_t kPage = 4096;
std::uint64_t record_bytes(const BitTriple& bits) {
  return kPage *
         (bits[0] + bits[1] + bits[2] + 2);  // 6144 bytes of scales and biases are 1.5 pages
}

SensitivityTable make_table(std::uint32_t layers, std::uint32_t experts,
                            std::vector<std::uint32_t> bits, double amplitude, unsigned seed) {
  std::mt19937 random(seed);
  const auto uniform = [&] { return static_cast<double>(random() % 1000 + 1) / 1000; };
  SensitivityTable t;
  t.model = "m";
  t.source_fingerprint = 77;
  t.method = "gptq";
  t.num_layers = layers;
  t.expert_layers = layers;
  t.num_experts = experts;
  t.hidden_size = 256;
  t.expert_width = 128;
  t.group_size = 64;
  t.page_size = kPage;
  t.bits = std::move(bits);
  for (std::uint32_t l = 0; l < layers; ++l) {
    LayerSensitivity layer;
    layer.response = {.per_energy = uniform(), .per_amplitude = amplitude * uniform()};
    layer.share.assign(experts, 0.5);
    for (auto& widths : layer.error) {
      std::vector<double> first(experts);
      for (double& e : first) e = uniform();
      for (std::size_t k = 0; k < t.bits.size(); ++k) {
        std::vector<double> errors;
        for (const double e : first)
          errors.push_back(e * std::pow(0.25, k) * (0.8 + 0.4 * uniform()));
        widths.push_back(errors);
      }
    }
    t.layers.push_back(std::move(layer));
  }
  return t;
}

std::size_t index_of(const SensitivityTable& t, std::uint32_t bits) {
  for (std::size_t k = 0; k < t.bits.size(); ++k) {
    if (t.bits[k] == bits) return k;
  }
  ADD_FAILURE() << bits << " bits";
  return 0;
}

struct Count {
  std::uint64_t bytes = 0;
  double divergence = 0;
};

// Size and prediction from their definitions.
Count count(const SensitivityTable& t, const std::vector<LayerExpertBits>& layers) {
  Count out;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    double error = 0;
    for (std::size_t e = 0; e < t.num_experts; ++e) {
      BitTriple bits{};
      for (std::size_t p = 0; p < 3; ++p) {
        bits[p] = layers[l][p][e];
        error += t.layers[l].error[p][index_of(t, bits[p])][e];
      }
      out.bytes += record_bytes(bits);
    }
    out.divergence += t.layers[l].response.per_energy * error +
                      t.layers[l].response.per_amplitude * std::sqrt(error);
  }
  return out;
}

ExpertBits uniform_bits(const SensitivityTable& t, const BitTriple& triple) {
  ExpertBits b;
  b.method = t.method;
  b.num_layers = t.num_layers;
  b.num_experts = t.num_experts;
  b.group_size = t.group_size;
  LayerExpertBits layer;
  for (std::size_t p = 0; p < 3; ++p) {
    layer[p].assign(t.num_experts, static_cast<std::uint8_t>(triple[p]));
  }
  b.layers.assign(t.num_layers, layer);
  return b;
}

void expect_same(const AllocationForecast& a, const AllocationForecast& b) {
  EXPECT_EQ(a.pack_bytes, b.pack_bytes);
  EXPECT_DOUBLE_EQ(a.bits_per_weight, b.bits_per_weight);
  EXPECT_DOUBLE_EQ(a.divergence, b.divergence);
  EXPECT_DOUBLE_EQ(a.uniform_divergence, b.uniform_divergence);
}

TEST(BitPlan, SizesAndPredictionsAddUp) {
  const SensitivityTable t = make_table(3, 5, {2, 3, 4}, 0.3, 1);
  const std::uint64_t least = 15 * record_bytes({2, 2, 2});
  const std::uint64_t most = 15 * record_bytes({4, 4, 4});
  double before = std::numeric_limits<double>::max();
  for (std::uint64_t budget = least; budget <= most; budget += 3 * kPage - 1) {
    ASSERT_OK_AND_ASSIGN(const BitPlan plan, plan_bits(t, budget));
    const AllocationForecast& f = plan.bits.forecast;
    const Count counted = count(t, plan.bits.layers);
    EXPECT_EQ(f.pack_bytes, counted.bytes);
    EXPECT_LE(f.pack_bytes, budget);
    EXPECT_GT(f.pack_bytes + kPage, budget);  // a page is one matrix's bit
    EXPECT_NEAR(f.divergence, counted.divergence, 1e-12);
    EXPECT_DOUBLE_EQ(f.bits_per_weight,
                     8.0 * static_cast<double>(counted.bytes) / (3.0 * 15 * 256 * 128));
    EXPECT_EQ(plan.gap, 0);
    EXPECT_LE(f.divergence, f.uniform_divergence * (1 + 1e-12));
    EXPECT_LE(f.divergence, before * 1.01);  // rounds may settle a little beside the best
    before = f.divergence;
    double layers = 0;
    for (const double d : plan.layer_divergence) layers += d;
    EXPECT_NEAR(layers, f.divergence, 1e-12);
    EXPECT_EQ(plan.bits.target_bytes, budget);
    EXPECT_EQ(plan.bits.source_fingerprint, 77U);
    EXPECT_EQ(plan.bits.group_size, 64U);
    expect_same(forecast_of(t, plan.bits), f);
  }
}

// A layer without experts is as none.
TEST(BitPlan, LayersWithoutExpertsTakeNothing) {
  const SensitivityTable t = make_table(3, 5, {2, 3, 4}, 0.3, 1);
  SensitivityTable dense = t;
  LayerSensitivity none;
  for (auto& widths : none.error) widths.resize(t.bits.size());
  dense.layers.insert(dense.layers.begin(), none);
  dense.num_layers = 4;
  const std::uint64_t budget = 15 * record_bytes({3, 3, 3});
  ASSERT_OK_AND_ASSIGN(const BitPlan plan, plan_bits(t, budget));
  ASSERT_OK_AND_ASSIGN(const BitPlan same, plan_bits(dense, budget));
  expect_same(same.bits.forecast, plan.bits.forecast);
  expect_same(forecast_of(dense, same.bits), plan.bits.forecast);
  EXPECT_EQ(same.layer_divergence[0], 0);
  for (const auto& widths : same.bits.layers[0]) EXPECT_TRUE(widths.empty());
  EXPECT_TRUE(std::equal(plan.bits.layers.begin(), plan.bits.layers.end(),
                         same.bits.layers.begin() + 1, same.bits.layers.end()));
  EXPECT_EQ(bytes_of_bits_per_weight(dense, 3), bytes_of_bits_per_weight(t, 3));
  EXPECT_OK(check_budget(dense, budget));
  EXPECT_FALSE(check_budget(dense, 2 * budget).is_ok());
}

// Where errors only count by their square, nothing depends on anything else: the best of all.
TEST(BitPlan, IsTheBestOfAll) {
  const SensitivityTable t = make_table(2, 2, {2, 4}, 0, 2);
  std::vector<Count> all;
  for (unsigned code = 0; code < 1U << 12; ++code) {
    std::vector<LayerExpertBits> bits = uniform_bits(t, {2, 2, 2}).layers;
    for (unsigned i = 0; i < 12; ++i) {
      if ((code >> i & 1) != 0) bits[i / 6][i / 2 % 3][i % 2] = 4;
    }
    all.push_back(count(t, bits));
  }
  for (std::uint64_t budget = 4 * record_bytes({2, 2, 2}); budget <= 4 * record_bytes({4, 4, 4});
       budget += kPage) {
    double best = std::numeric_limits<double>::max();
    for (const Count& c : all) {
      if (c.bytes <= budget) best = std::min(best, c.divergence);
    }
    ASSERT_OK_AND_ASSIGN(const BitPlan plan, plan_bits(t, budget));
    EXPECT_NEAR(plan.bits.forecast.divergence, best, 1e-12) << budget;
    EXPECT_EQ(plan.gap, 0) << budget;
  }
}

TEST(BitPlan, NeverWorseThanAUniformPackThatFits) {
  for (unsigned seed = 10; seed < 30; ++seed) {
    const SensitivityTable t = make_table(2, 4, {2, 3, 5, 8}, 2, seed);
    for (const BitTriple& triple :
         {BitTriple{2, 2, 2}, {2, 2, 3}, {3, 3, 3}, {5, 3, 8}, {8, 8, 8}}) {
      const Count uniform = count(t, uniform_bits(t, triple).layers);
      ASSERT_OK_AND_ASSIGN(const BitPlan plan, plan_bits(t, uniform.bytes));
      EXPECT_LE(plan.bits.forecast.divergence, uniform.divergence * (1 + 1e-12)) << seed;
    }
  }
}

TEST(BitPlan, UniformPacksPredictTheirOwnLoss) {
  const SensitivityTable t = make_table(2, 4, {2, 3, 4}, 0.5, 3);
  ASSERT_OK_AND_ASSIGN(const BitPlan plan, plan_bits(t, 8 * record_bytes({3, 3, 3})));
  ASSERT_GE(plan.uniform.size(), 3U);
  EXPECT_EQ(plan.uniform.front().bits, (BitTriple{2, 2, 2}));
  EXPECT_EQ(plan.uniform.back().bits, (BitTriple{4, 4, 4}));
  for (std::size_t i = 0; i < plan.uniform.size(); ++i) {
    const UniformPack& pack = plan.uniform[i];
    const ExpertBits bits = uniform_bits(t, pack.bits);
    const Count counted = count(t, bits.layers);
    EXPECT_EQ(pack.bytes, counted.bytes);
    EXPECT_NEAR(pack.divergence, counted.divergence, 1e-12);
    const AllocationForecast f = forecast_of(t, bits);
    EXPECT_DOUBLE_EQ(f.uniform_divergence, f.divergence);
    EXPECT_NEAR(f.divergence, counted.divergence, 1e-12);
    if (i == 0) continue;
    EXPECT_GT(pack.bytes, plan.uniform[i - 1].bytes);
    EXPECT_LT(pack.divergence, plan.uniform[i - 1].divergence);
  }
}

TEST(BitPlan, BetweenTwoUniformPacksItLiesBetween) {
  const SensitivityTable t = make_table(2, 4, {2, 4}, 0.5, 4);
  ExpertBits bits = uniform_bits(t, {2, 2, 2});
  bits.layers[0][0][0] = 4;
  const AllocationForecast f = forecast_of(t, bits);
  const double low = count(t, uniform_bits(t, {2, 2, 2}).layers).divergence;
  EXPECT_LT(f.uniform_divergence, low);
  // One matrix of 24 gets its bits. On a straight line of logarithms to the next uniform pack.
  ASSERT_OK_AND_ASSIGN(const BitPlan plan, plan_bits(t, 8 * record_bytes({2, 2, 2})));
  const UniformPack& next = plan.uniform[1];
  const double at = 2.0 * kPage / static_cast<double>(next.bytes - plan.uniform[0].bytes);
  EXPECT_NEAR(std::log(f.uniform_divergence),
              std::log(low) * (1 - at) + std::log(next.divergence) * at, 1e-9);
}

TEST(BitPlan, TheExpertThatMattersMostGetsTheMostBits) {
  SensitivityTable t = make_table(2, 4, {2, 3, 4}, 0.2, 5);
  for (auto& widths : t.layers[1].error) {
    for (auto& errors : widths) errors[2] *= 1000;
  }
  ASSERT_OK_AND_ASSIGN(const BitPlan plan, plan_bits(t, 8 * record_bytes({2, 2, 2}) + 6 * kPage));
  for (std::size_t p = 0; p < 3; ++p) {
    EXPECT_EQ(plan.bits.layers[1][p][2], 4);
    for (std::size_t e = 0; e < 4; ++e) {
      EXPECT_EQ(plan.bits.layers[0][p][e], 2);
      if (e != 2) {
        EXPECT_EQ(plan.bits.layers[1][p][e], 2);
      }
    }
  }
}

TEST(BitPlan, ImpossibleTargets) {
  const SensitivityTable t = make_table(2, 3, {2, 3, 4}, 0.2, 6);
  const std::uint64_t least = 6 * record_bytes({2, 2, 2});
  const std::uint64_t most = 6 * record_bytes({4, 4, 4});
  EXPECT_OK(plan_bits(t, least));
  EXPECT_OK(plan_bits(t, most));
  const std::string under = std::to_string(least - 1);
  const std::string least_text = std::to_string(least);
  const std::string over = std::to_string(most + 1);
  const std::string most_text = std::to_string(most);
  test::expect_error(plan_bits(t, least - 1).status(), StatusCode::kInvalidArgument,
                     {under, least_text, "too small", "2.66"});  // 8 * 8 pages / 98304 weights
  test::expect_error(plan_bits(t, most + 1).status(), StatusCode::kInvalidArgument,
                     {over, most_text, "too large", "4.66"});
  test::expect_error(plan_bits(t, 0).status(), StatusCode::kInvalidArgument, {"0 bytes"});
}

TEST(BitPlan, NoForecastFromOtherMeasurements) {
  const SensitivityTable t = make_table(2, 3, {2, 4}, 0.2, 7);
  const ExpertBits good = uniform_bits(t, {4, 2, 2});
  EXPECT_GT(forecast_of(t, good).pack_bytes, 0U);
  ExpertBits unknown_method = good;
  unknown_method.method.clear();
  EXPECT_GT(forecast_of(t, unknown_method).pack_bytes, 0U);
  const auto expect_none = [&](const SensitivityTable& table, const ExpertBits& bits) {
    const AllocationForecast f = forecast_of(table, bits);
    EXPECT_EQ(f.pack_bytes, 0U);
    EXPECT_EQ(f.divergence, 0);
    EXPECT_EQ(f.gain(), 0);
  };
  ExpertBits other = good;
  other.layers[1][2][0] = 3;
  expect_none(t, other);
  other = good;
  other.method = "rtn";
  expect_none(t, other);
  other = good;
  other.group_size = 32;
  expect_none(t, other);
  expect_none(t, uniform_bits(make_table(2, 4, {2, 4}, 0.2, 7), {2, 2, 2}));
  expect_none(t, uniform_bits(make_table(1, 3, {2, 4}, 0.2, 7), {2, 2, 2}));
  SensitivityTable unfinished = t;
  unfinished.layers.pop_back();
  expect_none(unfinished, good);
}

TEST(BitPlan, RecordsFillPages) {
  SensitivityTable t = make_table(1, 1, {2, 4, 6}, 0, 8);
  ASSERT_OK_AND_ASSIGN(const std::uint64_t small, stored_bytes(t, {2, 4, 6}));
  EXPECT_EQ(small, 14 * kPage);
  t.page_size = 16384;
  ASSERT_OK_AND_ASSIGN(const std::uint64_t large, stored_bytes(t, {2, 4, 6}));
  EXPECT_EQ(large, 65536U);
  t.page_size = 1;
  ASSERT_OK_AND_ASSIGN(const std::uint64_t exact, stored_bytes(t, {2, 4, 6}));
  EXPECT_EQ(exact, 12 * 4096U + 3 * 512 * 4);
  EXPECT_EQ(bytes_of_bits_per_weight(t, 4), 3 * 256 * 128 / 2U);
  EXPECT_EQ(bytes_of_bits_per_weight(t, 2.83), 34775U);  // 34775.04
  t.expert_width = 100;
  test::expect_error(stored_bytes(t, {2, 4, 6}).status(), StatusCode::kInvalidArgument,
                     {"100", "groups"});
}

}  // namespace
}  // namespace moepack::bit_plan_test
