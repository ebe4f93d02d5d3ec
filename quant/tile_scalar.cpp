// The tile kernels in plain C++: the definition of the results.
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "formats/base/dtype.h"
#include "quant/tile.h"

#define MOE_SIMD
#define MOE_SIMD_INLINE inline

namespace moepack {
namespace {

struct Lanes {
  std::array<float, kTileRows> v;
};

template <typename Operation>
inline Lanes each(const Operation& operation) {
  Lanes out;
  for (std::size_t i = 0; i < kTileRows; ++i) out.v[i] = operation(i);
  return out;
}

inline Lanes broadcast(float value) {
  return each([&](std::size_t) { return value; });
}
inline Lanes load(const float* at) {
  return each([&](std::size_t i) { return at[i]; });
}
inline void store(float* at, const Lanes& a) {
  for (std::size_t i = 0; i < kTileRows; ++i) at[i] = a.v[i];
}
inline Lanes add(const Lanes& a, const Lanes& b) {
  return each([&](std::size_t i) { return a.v[i] + b.v[i]; });
}
inline Lanes sub(const Lanes& a, const Lanes& b) {
  return each([&](std::size_t i) { return a.v[i] - b.v[i]; });
}
inline Lanes mul(const Lanes& a, const Lanes& b) {
  return each([&](std::size_t i) { return a.v[i] * b.v[i]; });
}
inline Lanes div(const Lanes& a, const Lanes& b) {
  return each([&](std::size_t i) { return a.v[i] / b.v[i]; });
}
// Gives the second operand where either is NaN, as the instructions do.
inline Lanes min(const Lanes& a, const Lanes& b) {
  return each([&](std::size_t i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Lanes max(const Lanes& a, const Lanes& b) {
  return each([&](std::size_t i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Lanes round_even(const Lanes& a) {
  return each([&](std::size_t i) { return std::nearbyint(a.v[i]); });
}
// Rounds finite values to bf16, ties to even, and widens them again.
inline Lanes round_bf16(const Lanes& a) {
  return each([&](std::size_t i) {
    const auto bits = std::bit_cast<std::uint32_t>(a.v[i]);
    return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
  });
}
inline Lanes select_less(const Lanes& a, const Lanes& b, const Lanes& yes, const Lanes& no) {
  return each([&](std::size_t i) { return a.v[i] < b.v[i] ? yes.v[i] : no.v[i]; });
}
inline Lanes select_equal(const Lanes& a, const Lanes& b, const Lanes& yes, const Lanes& no) {
  return each([&](std::size_t i) { return a.v[i] == b.v[i] ? yes.v[i] : no.v[i]; });
}
inline bool any_nonzero(const Lanes& a) {
  for (float value : a.v) {
    if (value != 0.0F) return true;
  }
  return false;
}
#include "quant/tile_body.inc"

}  // namespace

const TileKernels& scalar_tile_kernels() {
  static constexpr TileKernels kKernels{"scalar", search_range, round_block, refine_block};
  return kKernels;
}

const TileKernels& tile_kernels() {
  static const TileKernels* const kBest = [] {
    if (avx512_tile_kernels() != nullptr) return avx512_tile_kernels();
    if (avx2_tile_kernels() != nullptr) return avx2_tile_kernels();
    return &scalar_tile_kernels();
  }();
  return *kBest;
}

}  // namespace moepack
