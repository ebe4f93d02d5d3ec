#include "quant/grid.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "quant/tile.h"

namespace moepack {
namespace {

constexpr std::uint32_t kRefits = 3;
constexpr int kClipSteps = 20;
constexpr float kClipLeast = 0.7F;
constexpr float kTwoSidedLeast = 0.34F;
constexpr float kTwoSidedStep = 0.06F;

std::vector<RangeCandidate> clip_candidates() {
  std::vector<RangeCandidate> all;
  for (int i = kClipSteps - 1; i >= 0; --i) {
    const float ratio = kClipLeast + (1.0F - kClipLeast) * static_cast<float>(i) / (kClipSteps - 1);
    all.push_back({.low = ratio, .high = ratio, .around_mean = true});
  }
  return all;
}

std::vector<RangeCandidate> candidates_of(GridMethod method) {
  if (method == GridMethod::kMinMax) return {{.low = 1, .high = 1, .around_mean = false}};
  std::vector<RangeCandidate> all = clip_candidates();
  if (method == GridMethod::kClip) return all;
  const int steps = static_cast<int>(std::lround((1.0F - kTwoSidedLeast) / kTwoSidedStep)) + 1;
  for (int low = 0; low < steps; ++low) {
    for (int high = 0; high < steps; ++high) {
      all.push_back({.low = 1.0F - kTwoSidedStep * static_cast<float>(low),
                     .high = 1.0F - kTwoSidedStep * static_cast<float>(high),
                     .around_mean = false});
    }
  }
  return all;
}

}  // namespace

void choose_grid(GridMethod method, const Matrix& w, std::span<const float> importance,
                 AffineMatrix& q) {
  assert(importance.empty() || importance.size() == q.cols);
  const std::vector<RangeCandidate> candidates = candidates_of(method);
  const std::vector<float> equal(q.group_size, 1.0F);
  const TileKernels& kernels = tile_kernels();
  std::array<float, kTileColumns * kTileRows> tile{};
  for (std::size_t g = 0; g < q.groups(); ++g) {
    const std::size_t first = g * q.group_size;
    RangeSearch search{.w = tile.data(),
                       .weights = importance.empty() ? equal.data() : &importance[first],
                       .columns = q.group_size,
                       .max_code = q.max_code(),
                       .candidates = candidates,
                       .refits = method == GridMethod::kTwoSided ? kRefits : 0};
    // No input ever reaches this group, so any grid will do, and the plain error decides.
    if (std::all_of(search.weights, search.weights + q.group_size,
                    [](float h) { return h == 0.0F; })) {
      search.weights = equal.data();
    }
    for (std::size_t row = 0; row < q.padded_rows(); row += kTileRows) {
      for (std::size_t j = 0; j < q.group_size; ++j) {
        std::copy_n(&w(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(first + j)),
                    kTileRows, &tile[j * kTileRows]);
      }
      const auto at = static_cast<Eigen::Index>(row);
      const auto group = static_cast<Eigen::Index>(g);
      kernels.search_range(search, &q.scale(at, group), &q.bias(at, group));
    }
  }
  round_to_grid(w, q);
}

void round_to_grid(const Matrix& w, AffineMatrix& q) {
  const float most = q.max_code();
  for (std::size_t c = 0; c < q.cols; ++c) {
    const auto column = static_cast<Eigen::Index>(c);
    const auto group = static_cast<Eigen::Index>(c / q.group_size);
    for (Eigen::Index r = 0; r < w.rows(); ++r) {
      const float scale = q.scale(r, group);
      const float code = (w(r, column) - q.bias(r, group)) / (scale != 0.0F ? scale : 1.0F);
      q.codes(r, column) =
          static_cast<std::uint8_t>(std::nearbyint(std::min(std::max(code, 0.0F), most)));
    }
  }
}

}  // namespace moepack
