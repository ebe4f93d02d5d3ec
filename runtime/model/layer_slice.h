// One sequence's part of a batch, as a layer sees it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/status.h"
#include "runtime/model/layer_state.h"

namespace moepack {

// Rows [first, first + count) of the batch are the tokens at positions [position, position + count)
// of the sequence whose state is `state`. Slices of a batch are sorted by `first` and do not
// overlap.
struct LayerSlice {
  LayerState* state = nullptr;  // of the layer
  std::uint64_t position = 0;
  std::size_t first = 0;
  std::size_t count = 0;
  Status* status = nullptr;  // set when the slice cannot go on; it is skipped from then on

  bool is_live() const { return status->is_ok(); }
};

// The live slice that a row belongs to; nullptr when there is none.
inline const LayerSlice* slice_of_row(std::span<const LayerSlice> slices, std::size_t row) {
  const auto after = std::upper_bound(
      slices.begin(), slices.end(), row,
      [](std::size_t wanted, const LayerSlice& slice) { return wanted < slice.first; });
  if (after == slices.begin()) return nullptr;
  const LayerSlice& slice = *(after - 1);
  return slice.is_live() && row - slice.first < slice.count ? &slice : nullptr;
}

}  // namespace moepack
