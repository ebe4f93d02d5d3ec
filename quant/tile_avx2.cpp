// The tile kernels with AVX2: a tile's rows are two vectors of eight.
#include "quant/tile.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>
#include <limits>

#define MOE_SIMD __attribute__((target("avx2")))
#define MOE_SIMD_INLINE MOE_SIMD __attribute__((always_inline)) inline

namespace moepack {
namespace {

struct Lanes {
  __m256 a;
  __m256 b;
};

MOE_SIMD_INLINE Lanes broadcast(float value) {
  return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
MOE_SIMD_INLINE Lanes load(const float* at) {
  return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)};
}
MOE_SIMD_INLINE void store(float* at, const Lanes& x) {
  _mm256_storeu_ps(at, x.a);
  _mm256_storeu_ps(at + 8, x.b);
}
MOE_SIMD_INLINE Lanes add(const Lanes& x, const Lanes& y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
MOE_SIMD_INLINE Lanes sub(const Lanes& x, const Lanes& y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
MOE_SIMD_INLINE Lanes mul(const Lanes& x, const Lanes& y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
MOE_SIMD_INLINE Lanes div(const Lanes& x, const Lanes& y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
MOE_SIMD_INLINE Lanes min(const Lanes& x, const Lanes& y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
MOE_SIMD_INLINE Lanes max(const Lanes& x, const Lanes& y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
MOE_SIMD_INLINE Lanes round_even(const Lanes& x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
MOE_SIMD_INLINE __m256 round_bf16_half(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(-65536)));
}
MOE_SIMD_INLINE Lanes round_bf16(const Lanes& x) {
  return {round_bf16_half(x.a), round_bf16_half(x.b)};
}
MOE_SIMD_INLINE Lanes select_less(const Lanes& x, const Lanes& y, const Lanes& yes,
                                  const Lanes& no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
MOE_SIMD_INLINE Lanes select_equal(const Lanes& x, const Lanes& y, const Lanes& yes,
                                   const Lanes& no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ))};
}
MOE_SIMD_INLINE bool any_nonzero(const Lanes& x) {
  const __m256 zero = _mm256_setzero_ps();
  return (_mm256_movemask_ps(_mm256_cmp_ps(x.a, zero, _CMP_NEQ_UQ)) |
          _mm256_movemask_ps(_mm256_cmp_ps(x.b, zero, _CMP_NEQ_UQ))) != 0;
}
#include "quant/tile_body.inc"

}  // namespace

const TileKernels* avx2_tile_kernels() {
  static constexpr TileKernels kKernels{"avx2", search_range, round_block, refine_block};
  return __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace moepack

#else

namespace moepack {

const TileKernels* avx2_tile_kernels() { return nullptr; }

}  // namespace moepack

#endif
