#include "runtime/placement/layer_split.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace moepack {

Result<std::vector<LayerRange>> split_layers(std::span<const std::uint64_t> layer_bytes,
                                             std::span<const double> shares) {
  if (shares.size() > layer_bytes.size()) {
    return invalid_argument(std::to_string(shares.size()) + " devices cannot share " +
                                std::to_string(layer_bytes.size()) + " layers",
                            "name fewer with --devices");
  }
  double all_shares = 0;
  for (const double share : shares) {
    if (!std::isfinite(share) || share <= 0) {
      return invalid_argument("a device's share of the layers must be above 0",
                              "give --tensor-split a number above 0 for each device");
    }
    all_shares += share;
  }
  std::vector<double> before{0};  // bytes of the layers before each
  for (const std::uint64_t bytes : layer_bytes) {
    before.push_back(before.back() + static_cast<double>(bytes));
  }
  std::vector<LayerRange> ranges;
  double shares_before = 0;
  std::uint32_t first = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    shares_before += shares[i];
    const double wanted = before.back() * (shares_before / all_shares);
    const std::size_t left = shares.size() - 1 - i;
    std::uint32_t end = first + 1;
    while (end + left < layer_bytes.size() &&
           std::abs(before[end + 1] - wanted) < std::abs(before[end] - wanted)) {
      ++end;
    }
    if (left == 0) end = static_cast<std::uint32_t>(layer_bytes.size());
    ranges.push_back({first, end});
    first = end;
  }
  return ranges;
}

}  // namespace moepack
