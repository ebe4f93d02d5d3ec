// The tile kernels with AVX-512: a tile's rows are one vector.
#include "quant/tile.h"

#if defined(__x86_64__)

#if !defined(__clang__)
// gcc 12 takes the "undefined" operands inside its own intrinsics for mistakes (gcc bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <array>
#include <limits>

#define MOE_SIMD __attribute__((target("avx512f")))
#define MOE_SIMD_INLINE MOE_SIMD __attribute__((always_inline)) inline

namespace moepack {
namespace {

struct Lanes {
  __m512 v;
};

MOE_SIMD_INLINE Lanes broadcast(float value) { return {_mm512_set1_ps(value)}; }
MOE_SIMD_INLINE Lanes load(const float* at) { return {_mm512_loadu_ps(at)}; }
MOE_SIMD_INLINE void store(float* at, const Lanes& x) { _mm512_storeu_ps(at, x.v); }
MOE_SIMD_INLINE Lanes add(const Lanes& x, const Lanes& y) { return {_mm512_add_ps(x.v, y.v)}; }
MOE_SIMD_INLINE Lanes sub(const Lanes& x, const Lanes& y) { return {_mm512_sub_ps(x.v, y.v)}; }
MOE_SIMD_INLINE Lanes mul(const Lanes& x, const Lanes& y) { return {_mm512_mul_ps(x.v, y.v)}; }
MOE_SIMD_INLINE Lanes div(const Lanes& x, const Lanes& y) { return {_mm512_div_ps(x.v, y.v)}; }
MOE_SIMD_INLINE Lanes min(const Lanes& x, const Lanes& y) { return {_mm512_min_ps(x.v, y.v)}; }
MOE_SIMD_INLINE Lanes max(const Lanes& x, const Lanes& y) { return {_mm512_max_ps(x.v, y.v)}; }
MOE_SIMD_INLINE Lanes round_even(const Lanes& x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
MOE_SIMD_INLINE Lanes round_bf16(const Lanes& x) {
  const __m512i bits = _mm512_castps_si512(x.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  return {_mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(-65536)))};
}
MOE_SIMD_INLINE Lanes select_less(const Lanes& x, const Lanes& y, const Lanes& yes,
                                  const Lanes& no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), no.v, yes.v)};
}
MOE_SIMD_INLINE Lanes select_equal(const Lanes& x, const Lanes& y, const Lanes& yes,
                                   const Lanes& no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_EQ_OQ), no.v, yes.v)};
}
MOE_SIMD_INLINE bool any_nonzero(const Lanes& x) {
  return _mm512_cmp_ps_mask(x.v, _mm512_setzero_ps(), _CMP_NEQ_UQ) != 0;
}
#include "quant/tile_body.inc"

}  // namespace

const TileKernels* avx512_tile_kernels() {
  static constexpr TileKernels kKernels{"avx512", search_range, round_block, refine_block};
  return __builtin_cpu_supports("avx512f") ? &kKernels : nullptr;
}

}  // namespace moepack

#else

namespace moepack {

const TileKernels* avx512_tile_kernels() { return nullptr; }

}  // namespace moepack

#endif
