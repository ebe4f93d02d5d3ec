// The two orders of V heads in GatedDeltaNet, and the way from one to the other.
//
// With nk key heads and r = nv / nk V heads each, V head j of key head k is head k * r + j in
// grouped order (transformers, MLX) and head j * nk + k in tiled order (llama.cpp's
// conversion/qwen.py).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "formats/pack/resident_manifest.h"

namespace moepack {

// Brings `values`, one unit of equal size a V head, from order `from` to `to`, in place.
// values.size() is a multiple of value_heads, value_heads one of key_heads. Takes as much memory
// again.
template <typename T>
void reorder_v_heads(std::span<T> values, std::size_t key_heads, std::size_t value_heads,
                     ResidentConventions::VHeads from, ResidentConventions::VHeads to) {
  if (from == to || key_heads == value_heads) return;
  const std::size_t unit = values.size() / value_heads;
  const std::size_t ratio = value_heads / key_heads;
  const std::vector<T> old(values.begin(), values.end());
  for (std::size_t k = 0; k < key_heads; ++k) {
    for (std::size_t j = 0; j < ratio; ++j) {
      const std::size_t grouped = (k * ratio + j) * unit;
      const std::size_t tiled = (j * key_heads + k) * unit;
      const bool to_tiled = to == ResidentConventions::VHeads::kTiled;
      std::copy_n(old.data() + (to_tiled ? grouped : tiled), unit,
                  values.data() + (to_tiled ? tiled : grouped));
    }
  }
}

}  // namespace moepack
