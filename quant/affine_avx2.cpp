#include "quant/affine_group.h"

#if defined(__x86_64__)

#include <immintrin.h>

#define MOE_TARGET_AVX2 __attribute__((target("avx2")))

namespace moepack {
namespace {

constexpr std::size_t kLanes = 8;

MOE_TARGET_AVX2 float fold_min(__m256 v) {
  __m128 x = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_min_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_min_ss(x, _mm_movehdup_ps(x)));
}

MOE_TARGET_AVX2 float fold_max(__m256 v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

MOE_TARGET_AVX2 void range_avx2(const float* values, std::size_t n, float& low, float& high) {
  if (n % kLanes != 0) return scalar_affine_kernels().range(values, n, low, high);
  __m256 least = _mm256_loadu_ps(values);
  __m256 most = least;
  for (std::size_t i = kLanes; i < n; i += kLanes) {
    const __m256 v = _mm256_loadu_ps(values + i);
    least = _mm256_min_ps(least, v);
    most = _mm256_max_ps(most, v);
  }
  low = fold_min(least);
  high = fold_max(most);
}

// Eight codes as 32-bit integers. A NaN becomes 0, because max then gives its second operand.
MOE_TARGET_AVX2 __m256i eight_codes(const float* values, __m256 bias, __m256 scale, __m256 most) {
  const __m256 exact = _mm256_div_ps(_mm256_sub_ps(_mm256_loadu_ps(values), bias), scale);
  const __m256 code = _mm256_round_ps(exact, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(code, _mm256_setzero_ps()), most));
}

MOE_TARGET_AVX2 void codes_avx2(const float* values, std::size_t n, float bias, float scale,
                                float max_code, std::uint8_t* codes) {
  const __m256 b = _mm256_set1_ps(bias);
  const __m256 s = _mm256_set1_ps(scale);
  const __m256 most = _mm256_set1_ps(max_code);
  // The packs below work within halves of 128 bits; this puts the eight quadruples in order again.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    const __m256i a0 = eight_codes(values + i, b, s, most);
    const __m256i a1 = eight_codes(values + i + kLanes, b, s, most);
    const __m256i a2 = eight_codes(values + i + 2 * kLanes, b, s, most);
    const __m256i a3 = eight_codes(values + i + 3 * kLanes, b, s, most);
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_packus_epi32(a0, a1), _mm256_packus_epi32(a2, a3));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + i),
                        _mm256_permutevar8x32_epi32(bytes, order));
  }
  if (i < n) scalar_affine_kernels().codes(values + i, n - i, bias, scale, max_code, codes + i);
}

}  // namespace

const AffineGroupKernels* avx2_affine_kernels() {
  static constexpr AffineGroupKernels kKernels{range_avx2, codes_avx2};
  return __builtin_cpu_supports("avx2") != 0 ? &kKernels : nullptr;
}

}  // namespace moepack

#else

namespace moepack {

const AffineGroupKernels* avx2_affine_kernels() { return nullptr; }

}  // namespace moepack

#endif
