// Which calls have their products formed in tiles.
#if defined(__x86_64__)

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "runtime/cpu/code_kernels.h"
#include "runtime/model/kernels.h"
#include "tests/support/test_matrix.h"

namespace moepack::shaped_tiles_test {
namespace {

constexpr std::size_t kStride = 9;  // blocks

class ShapedTilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_cpu_level(CpuLevel::kAmx)) GTEST_SKIP() << "SKIPPED: no tiles on this machine";
    for (std::size_t t = 0; t < kPanelTokens; ++t) rows_.push_back(blocks_.data() + t * kStride);
  }
  // The inputs of tiles for the first `tokens` tokens.
  TileInputs tiles_for(std::size_t tokens, std::size_t digits = 2, bool has_tiles = true) const {
    const CodeCall call{
        {matrix_.view(), rows_.data(), digits, tokens, 0, 16, nullptr, 16, {}, nullptr},
        nullptr,
        {},
        has_tiles};
    return ShapedTiles(call, 1).inputs();
  }

  std::vector<InputBlock> blocks_ = std::vector<InputBlock>((kPanelTokens + 2) * kStride);
  std::vector<const InputBlock*> rows_;
  test::TestMatrix matrix_{{.id = QFormatId::kQ40}, 16, 128, test::Values::kUsual, 0, 1};
};

TEST_F(ShapedTilesTest, ManyTokensAtOneDistanceTakeThem) {
  for (const std::size_t tokens : {std::size_t{32}, std::size_t{33}, kPanelTokens}) {
    const TileInputs inputs = tiles_for(tokens);
    EXPECT_EQ(inputs.first, blocks_.data()) << tokens;
    EXPECT_EQ(inputs.stride, kStride) << tokens;
  }
}

TEST_F(ShapedTilesTest, OthersDoNot) {
  EXPECT_EQ(tiles_for(31).first, nullptr);
  EXPECT_EQ(tiles_for(2).first, nullptr);
  EXPECT_EQ(tiles_for(32, 1).first, nullptr) << "one digit";
  EXPECT_EQ(tiles_for(32, 2, false).first, nullptr) << "another level";
}

TEST_F(ShapedTilesTest, OneTokenElsewhereIsEnough) {
  rows_[31] += kStride;
  EXPECT_EQ(tiles_for(32).first, nullptr);
  rows_[31] -= kStride;
  std::swap(rows_[3], rows_[4]);
  EXPECT_EQ(tiles_for(32).first, nullptr);
  std::swap(rows_[3], rows_[4]);
  EXPECT_NE(tiles_for(32).first, nullptr);
}

TEST_F(ShapedTilesTest, TokensInFallingOrderDoNot) {
  const std::vector<const InputBlock*> rising = rows_;
  rows_.assign(rising.rbegin(), rising.rend());
  EXPECT_EQ(tiles_for(32).first, nullptr);
  rows_.assign(kPanelTokens, blocks_.data());
  EXPECT_EQ(tiles_for(32).first, nullptr) << "one token's inputs again and again";
}

}  // namespace
}  // namespace moepack::shaped_tiles_test

#endif
