#include "runtime/model/rope.h"

#include <gtest/gtest.h>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace moepack::rope_test {
namespace {

ModelConfig plain() {
  ModelConfig config;
  config.rotary_dim = 64;
  config.rope_theta = 150000;
  return config;
}

// The published sizes of gpt-oss; values of the formula of transformers' _compute_yarn_parameters
// in Python's float64.
TEST(Rope, YarnKeepsFastPairsAndDividesSlowOnes) {
  ModelConfig config = plain();
  config.yarn = YarnSpec{.factor = 32,
                         .original_positions = 4096,
                         .truncate = false,
                         .attention_factor = 0.1 * std::log(32.0) + 1};
  const Rope rope(config);
  ASSERT_EQ(rope.pairs(), 32U);
  const std::array<std::pair<std::size_t, float>, 8> expected{{{0, 1.0F},
                                                               {8, 0.0508132748F},
                                                               {10, 0.0193350011F},
                                                               {12, 0.00679495949F},
                                                               {16, 0.000456483919F},
                                                               {17, 0.000129318701F},
                                                               {20, 1.81883367e-05F},
                                                               {31, 3.02351143e-07F}}};
  for (const auto& [pair, value] : expected) {
    EXPECT_FLOAT_EQ(rope.inverse_frequency()[pair], value) << pair;
  }
  EXPECT_FLOAT_EQ(rope.amplitude(), 1.34657359F);
}

// Of heads of their own, pairs behind those that turn stay to the bit; frequencies are those of all
// pairs: transformers' _compute_proportional_rope_parameters for a head of 512 and a quarter of it.
TEST(Rope, SomePairsStay) {
  const Rope rope(plain(),
                  {.head_dim = 512, .rotary_dim = 512, .rotated_pairs = 64, .rope_theta = 1e6});
  ASSERT_EQ(rope.pairs(), 256U);
  EXPECT_FLOAT_EQ(rope.inverse_frequency()[1], 0.947463526F);
  EXPECT_FLOAT_EQ(rope.inverse_frequency()[63], 0.0333762469F);
  EXPECT_EQ(rope.inverse_frequency()[64], 0.0F);
  std::vector<float> rotation(512);
  rope.fill(12345, rotation);
  std::vector<float> head(512);
  for (std::size_t i = 0; i < head.size(); ++i) head[i] = 0.37F * static_cast<float>(i) - 50;
  const std::vector<float> before = head;
  rope.rotate(nullptr, rotation, head.data());
  for (std::size_t i = 0; i < head.size(); ++i) {
    EXPECT_EQ(head[i] == before[i], i % 256 >= 64) << i;
  }
}

// As above, of DeepSeek-V3: the range of pairs is rounded to 10 … 23.
TEST(Rope, YarnRoundsItsRange) {
  ModelConfig config = plain();
  config.rope_theta = 10000;
  config.yarn = YarnSpec{.factor = 40, .original_positions = 4096};
  const Rope rope(config);
  const std::array<std::pair<std::size_t, float>, 6> expected{{{8, 0.1F},
                                                               {10, 0.0562341325F},
                                                               {12, 0.0268793601F},
                                                               {16, 0.0055F},
                                                               {20, 0.000790569415F},
                                                               {31, 3.33380358e-06F}}};
  for (const auto& [pair, value] : expected) {
    EXPECT_FLOAT_EQ(rope.inverse_frequency()[pair], value) << pair;
  }
  EXPECT_EQ(rope.amplitude(), 1.0F);
}

TEST(Rope, FillsCosinesAndSinesTimesTheAmplitude) {
  ModelConfig config = plain();
  config.yarn = YarnSpec{.factor = 32, .original_positions = 4096, .attention_factor = 1.5};
  const Rope rope(config);
  std::vector<float> rotation(64);
  rope.fill(7, rotation);
  EXPECT_FLOAT_EQ(rotation[0], 1.5F * std::cos(7.0F));
  EXPECT_FLOAT_EQ(rotation[32], 1.5F * std::sin(7.0F));
}

// Interleaved pairs are the same rotation of values in another order.
TEST(Rope, InterleavedPairsAreNeighbours) {
  ModelConfig config = plain();
  const Rope halves(config);
  config.rope_interleaved = true;
  const Rope neighbours(config);
  std::vector<float> rotation(64);
  halves.fill(1000, rotation);
  std::vector<float> apart(70), together(70);
  for (std::size_t i = 0; i < apart.size(); ++i) apart[i] = static_cast<float>(i) - 11.5F;
  together = apart;
  for (std::size_t i = 0; i < 32; ++i) {
    together[2 * i] = apart[i];
    together[2 * i + 1] = apart[i + 32];
  }
  halves.rotate(&scalar_attention(), rotation, apart.data());
  neighbours.rotate(&scalar_attention(), rotation, together.data());
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(together[2 * i], apart[i]) << i;
    EXPECT_EQ(together[2 * i + 1], apart[i + 32]) << i;
  }
  for (std::size_t i = 64; i < apart.size(); ++i) {
    EXPECT_EQ(apart[i], static_cast<float>(i) - 11.5F);
    EXPECT_EQ(together[i], apart[i]);
  }
}

TEST(Rope, WithoutRotatedValuesNothingIsDone) {
  const Rope rope(ModelConfig{});
  float value = 3;
  rope.rotate(nullptr, {}, &value);
  EXPECT_EQ(rope.pairs(), 0U);
  EXPECT_EQ(value, 3.0F);
}

}  // namespace
}  // namespace moepack::rope_test
