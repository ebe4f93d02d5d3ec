// Layers shared by devices: whole, one after the other, as near to the shares as they come.
#include "runtime/placement/layer_split.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/support/status_matchers.h"

namespace moepack::layer_split_test {
namespace {

using Ranges = std::vector<LayerRange>;

Ranges split(const std::vector<std::uint64_t>& bytes, const std::vector<double>& shares) {
  const auto ranges = split_layers(bytes, shares);
  EXPECT_TRUE(ranges.is_ok()) << ranges.status().message();
  return ranges.is_ok() ? ranges.value() : Ranges{};
}

TEST(LayerSplit, ByHand) {
  EXPECT_EQ(split({1, 1, 1, 1}, {1, 1}), (Ranges{{0, 2}, {2, 4}}));
  EXPECT_EQ(split({1, 1, 1, 1}, {3, 1}), (Ranges{{0, 3}, {3, 4}}));
  EXPECT_EQ(split({1, 1, 1, 1, 1}, {1, 1}), (Ranges{{0, 2}, {2, 5}}));  // equally near: the earlier
  EXPECT_EQ(split({6, 1, 1, 1}, {1, 1}), (Ranges{{0, 1}, {1, 4}}));     // a large first layer
  EXPECT_EQ(split({5, 5}, {1}), (Ranges{{0, 2}}));
  EXPECT_EQ(split({1, 1, 1}, {100, 1, 1}), (Ranges{{0, 1}, {1, 2}, {2, 3}}));  // none is empty
  EXPECT_EQ(split({1, 1, 1}, {1, 1, 100}), (Ranges{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(LayerSplit, AllLayersOnceAndNoneOff) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint64_t> bytes(1 + random() % 60);
    for (std::uint64_t& b : bytes) b = 1 + random() % 1000;
    std::vector<double> shares(1 + random() % std::min<std::size_t>(8, bytes.size()));
    for (double& s : shares) s = 1 + static_cast<double>(random() % 100);
    const Ranges ranges = split(bytes, shares);
    ASSERT_EQ(ranges.size(), shares.size());
    std::uint32_t at = 0;
    for (const LayerRange& range : ranges) {
      EXPECT_EQ(range.first, at);
      EXPECT_GT(range.end, range.first);
      at = range.end;
    }
    EXPECT_EQ(at, bytes.size());
    // The first boundary cannot be moved nearer to its share.
    const double all = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), 0ULL));
    const double wanted = all * shares[0] / std::accumulate(shares.begin(), shares.end(), 0.0);
    const auto off = [&](std::uint32_t end) {
      return std::abs(
          static_cast<double>(std::accumulate(bytes.begin(), bytes.begin() + end, 0ULL)) - wanted);
    };
    if (shares.size() == 1) continue;
    const std::uint32_t end = ranges[0].end;
    if (end > 1) {
      EXPECT_LT(off(end), off(end - 1));
    }
    if (end + shares.size() - 1 < bytes.size()) {
      EXPECT_LE(off(end), off(end + 1));
    }
  }
}

TEST(LayerSplit, Refusals) {
  EXPECT_FALSE(
      split_layers(std::vector<std::uint64_t>{1, 1}, std::vector<double>{1, 1, 1}).is_ok());
  EXPECT_FALSE(split_layers(std::vector<std::uint64_t>{1, 1}, std::vector<double>{1, 0}).is_ok());
  EXPECT_FALSE(split_layers(std::vector<std::uint64_t>{1, 1}, std::vector<double>{1, -1}).is_ok());
  EXPECT_FALSE(
      split_layers(std::vector<std::uint64_t>{1, 1}, std::vector<double>{1, 1.0 / 0.0}).is_ok());
}

}  // namespace
}  // namespace moepack::layer_split_test
