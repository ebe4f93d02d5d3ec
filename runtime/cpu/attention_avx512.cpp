// Attention with AVX-512.
#if defined(__x86_64__)

#include <limits>

#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
#include "runtime/cpu/simd_exponential.inc"
// clang-format on

constexpr std::size_t kTileRows = 8;

// The bits of an E4M3 number, moved up by seven, are those of a binary16 number 2^-8 times as
// large; the sign is moved up by eight.
MOE_SIMD_INLINE Vec widen_e4m3(const std::byte* at) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m256i words = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
  return _mm512_cvtph_ps(_mm256_and_si256(words, _mm256_set1_epi16(static_cast<short>(0xbfff))));
}

// clang-format off
#include "runtime/cpu/simd_attention.inc"
// clang-format on

}  // namespace

constexpr AttentionKernels kAvx512Attention{
    .attend = attend, .merge = merge, .finish = finish, .rotate = rotate};

}  // namespace moepack

#endif
