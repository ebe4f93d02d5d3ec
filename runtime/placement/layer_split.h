// Which layers of a model each of several devices takes. Pure functions of sizes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// Layers [first, end).
struct LayerRange {
  std::uint32_t first = 0;
  std::uint32_t end = 0;

  std::uint32_t count() const { return end - first; }
  bool operator==(const LayerRange&) const = default;
};

// Ranges one after the other over all layers, one for each of `shares` and none of them empty, so
// that the bytes of each are as near as whole layers come to its share: boundary i lies where the
// bytes before it are nearest to the shares before it, an earlier one of two equally near ones.
// `layer_bytes`: [num_layers], what a device holds of each. `shares`: free memory of the devices,
// or what the user asks for, in any unit. kInvalidArgument, with the numbers, for more devices than
// layers, and for shares that are not finite or not above 0.
Result<std::vector<LayerRange>> split_layers(std::span<const std::uint64_t> layer_bytes,
                                             std::span<const double> shares);

}  // namespace moepack
