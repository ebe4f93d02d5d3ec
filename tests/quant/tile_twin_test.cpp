// The SIMD tile kernels give the bits of the scalar ones.
#include "quant/tile.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/random_matrix.h"

namespace moepack::tile_twin_test {
namespace {

std::vector<float> normal_values(std::size_t n, float size, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> out(n);
  for (float& x : out) x = normal(random);
  return out;
}

// Inputs of all three kernels for a block of `columns`, some lanes special.
struct Block {
  Block(std::size_t columns, std::size_t group, float max_code, unsigned seed) : max(max_code) {
    std::mt19937 random(seed);
    w = normal_values(columns * kTileRows, 0.02F, random);
    for (std::size_t j = 0; j < columns; ++j) {
      w[j * kTileRows + 2] = 0.25F;  // a constant row
      w[j * kTileRows + 5] = 0;      // padding
      w[j * kTileRows + 6] *= 1e-30F;
      w[j * kTileRows + 7] *= 1e20F;
    }
    const Matrix h = testing::hessian_of(testing::random_inputs(columns, 3 * columns, seed));
    hessian.assign(h.data(), h.data() + h.size());
    for (std::size_t j = 0; j < columns; ++j) weights.push_back(hessian[j * columns + j]);
    gradient = normal_values(columns * kTileRows, 0.01F, random);
    codes.resize(columns * kTileRows);
    std::uniform_int_distribution<int> code(0, static_cast<int>(max_code));
    for (float& q : codes) q = static_cast<float>(code(random));
    scale.assign(columns / group * kTileRows, 0.01F);
    bias.assign(columns / group * kTileRows, -0.02F);
    for (std::size_t g = 0; g < columns / group; ++g) scale[g * kTileRows + 5] = 0;
    column_scale.assign(columns * kTileRows, 0.01F);
    column_bias.assign(columns * kTileRows, -0.02F);
  }
  float max;
  std::vector<float> w, hessian, weights, gradient, codes, scale, bias, column_scale, column_bias;
};

const std::vector<RangeCandidate> kCandidates{
    {1, 1, true}, {1, 1, false}, {.4F, .7F, false}, {.8F, .8F, true}};

class TileTwin : public ::testing::TestWithParam<const TileKernels* (*)()> {
 protected:
  void SetUp() override {
    fast = GetParam()();
    if (fast == nullptr) GTEST_SKIP() << "this processor lacks the instructions";
  }
  const TileKernels* fast = nullptr;
};

TEST_P(TileTwin, RangeSearch) {
  for (std::size_t columns : {32U, 64U, 128U}) {
    for (float max : {3.0F, 7.0F, 255.0F}) {
      const Block b(columns, 32, max, static_cast<unsigned>(columns));
      const RangeSearch search{b.w.data(), b.weights.data(), columns, max, kCandidates, 3};
      std::array<float, kTileRows> scale{}, bias{}, fast_scale{}, fast_bias{};
      scalar_tile_kernels().search_range(search, scale.data(), bias.data());
      fast->search_range(search, fast_scale.data(), fast_bias.data());
      EXPECT_EQ(scale, fast_scale);
      EXPECT_EQ(bias, fast_bias);
    }
  }
}

TEST_P(TileTwin, RoundBlock) {
  for (std::size_t columns : {1U, 32U, 96U, 128U}) {
    const Block b(columns, 1, 3, static_cast<unsigned>(columns));
    std::vector<float> w = b.w, fast_w = b.w;
    std::vector<float> codes(w.size()), fast_codes(w.size()), error(w.size()), fast_error(w.size());
    RoundBlock block{columns, b.hessian.data(), b.column_scale.data(), b.column_bias.data(),
                     3,       w.data(),         codes.data(),          error.data()};
    scalar_tile_kernels().round_block(block);
    block.w = fast_w.data();
    block.codes = fast_codes.data();
    block.error = fast_error.data();
    fast->round_block(block);
    EXPECT_EQ(codes, fast_codes);
    EXPECT_EQ(error, fast_error);
    EXPECT_EQ(w, fast_w);
  }
}

TEST_P(TileTwin, RefineBlock) {
  for (std::size_t columns : {32U, 64U, 128U}) {
    for (float max : {3.0F, 15.0F}) {
      Block slow(columns, 32, max, static_cast<unsigned>(columns));
      Block quick = slow;
      std::vector<float> change(slow.w.size()), fast_change(slow.w.size());
      const auto run = [&](const TileKernels& kernels, Block& b, std::vector<float>& out) {
        RefineBlock block{.columns = columns,
                          .group_size = 32,
                          .hessian = b.hessian.data(),
                          .max_code = max,
                          .rounds = 2,
                          .gradient = b.gradient.data(),
                          .codes = b.codes.data(),
                          .scale = b.scale.data(),
                          .bias = b.bias.data(),
                          .change = out.data()};
        kernels.refine_block(block);
        return block.gain;
      };
      const double gain = run(scalar_tile_kernels(), slow, change);
      EXPECT_EQ(gain, run(*fast, quick, fast_change));
      EXPECT_GT(gain, 0);
      EXPECT_EQ(slow.codes, quick.codes);
      EXPECT_EQ(slow.scale, quick.scale);
      EXPECT_EQ(slow.bias, quick.bias);
      EXPECT_EQ(slow.gradient, quick.gradient);
      EXPECT_EQ(change, fast_change);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, TileTwin,
                         ::testing::Values(&avx2_tile_kernels, &avx512_tile_kernels));

}  // namespace
}  // namespace moepack::tile_twin_test
