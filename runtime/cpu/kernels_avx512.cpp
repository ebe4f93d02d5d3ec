// AVX-512 F, BW, DQ, VL: sixteen floats a vector. The primitives; the kernels made of them stand in
// simd_*.inc.
#if defined(__x86_64__)

#if !defined(__clang__)
// gcc 12 takes the "undefined" operands inside its own intrinsics for mistakes (gcc bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <bit>
#include <cassert>
#include <cstring>

#include "formats/bytes.h"
#include "formats/ggml_blocks.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"

#define MOE_TARGET_AVX512 \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#define MOE_SIMD MOE_TARGET_AVX512
#define MOE_SIMD_INLINE MOE_TARGET_AVX512 __attribute__((always_inline)) inline

namespace moepack {
namespace {

using Vec = __m512;
constexpr std::size_t kLanes = 16;
// Tokens and column vectors that a register block holds: 4 rows x 6 tokens, 8 state vectors.
constexpr std::size_t kTokenBlock = 6;
constexpr std::size_t kDeltaVectors = 8;

MOE_SIMD_INLINE Vec zero() { return _mm512_setzero_ps(); }
MOE_SIMD_INLINE Vec broadcast(float value) { return _mm512_set1_ps(value); }
MOE_SIMD_INLINE Vec load(const float* at) { return _mm512_loadu_ps(at); }
MOE_SIMD_INLINE void store(float* at, Vec value) { _mm512_storeu_ps(at, value); }
MOE_SIMD_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
MOE_SIMD_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
MOE_SIMD_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
MOE_SIMD_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
// a * b + c, rounded once.
MOE_SIMD_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
// The second operand where either is NaN.
MOE_SIMD_INLINE Vec min_or_second(Vec a, Vec b) { return _mm512_min_ps(a, b); }
MOE_SIMD_INLINE Vec max_or_second(Vec a, Vec b) { return _mm512_max_ps(a, b); }
MOE_SIMD_INLINE Vec round_to_integer(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// a * 2^n for integral n in [-252, 254]: two factors, so that results may be subnormal or infinite.
MOE_SIMD_INLINE Vec scale_by_power(Vec a, Vec n) {
  const __m512i power = _mm512_cvtps_epi32(n);
  const __m512i half = _mm512_srai_epi32(power, 1);
  const __m512i rest = _mm512_sub_epi32(power, half);
  const __m512i bias = _mm512_set1_epi32(127);
  const Vec first = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23));
  const Vec second = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23));
  return mul(mul(a, first), second);
}

// Ones for the first `count` lanes, count < kLanes.
MOE_SIMD_INLINE __mmask16 first_lanes(std::size_t count) {
  return static_cast<__mmask16>((1U << count) - 1U);
}
// The first `count` < kLanes floats, zeros behind them; nothing beyond is touched.
MOE_SIMD_INLINE Vec load_first(const float* at, std::size_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), at);
}
MOE_SIMD_INLINE void store_first(float* at, Vec value, std::size_t count) {
  _mm512_mask_storeu_ps(at, first_lanes(count), value);
}

// Lanes i and i + 8 added.
MOE_SIMD_INLINE __m256 fold(Vec a) {
  return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
}
// Lane sums of four vectors: fold, then ((0+1)+(2+3)) + ((4+5)+(6+7)).
MOE_SIMD_INLINE __m128 reduce(Vec a, Vec b, Vec c, Vec d) {
  const __m256 sums =
      _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
  return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

using Half = __m256i;  // kLanes 16-bit elements
MOE_SIMD_INLINE Half load_half(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
MOE_SIMD_INLINE Half load_half_first(const std::byte* at, std::size_t count) {
  return _mm256_maskz_loadu_epi16(first_lanes(count), at);
}
MOE_SIMD_INLINE Vec widen_f16(Half bits) { return _mm512_cvtph_ps(bits); }
MOE_SIMD_INLINE Vec widen_bf16(Half bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// One 16-bit float in every lane.
MOE_SIMD_INLINE Vec repeat_f16(const std::byte* at) {
  std::int16_t value = 0;
  std::memcpy(&value, at, 2);
  return _mm512_cvtph_ps(_mm256_set1_epi16(value));
}
MOE_SIMD_INLINE Vec repeat_bf16(const std::byte* at) {
  std::int16_t value = 0;
  std::memcpy(&value, at, 2);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_set1_epi16(value), 16));
}

using Words = __m512i;  // kLanes 32-bit words of codes

// A window of 8 or 16 bytes, repeated over half a register.
template <std::uint32_t Bytes>
MOE_SIMD_INLINE __m256i repeat_in_half(const std::byte* at) {
  static_assert(Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 8) {
    std::int64_t word = 0;
    std::memcpy(&word, at, 8);
    return _mm256_set1_epi64x(word);
  } else {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
}

// The lanes of a code block, as LanePlan says.
template <std::uint32_t Bits>
MOE_SIMD_INLINE Words gather_lanes(const std::byte* block) {
  using Plan = LanePlan<Bits, kLanes>;
  static_assert(!Plan::kIsPlain);
  const __m256i lower = repeat_in_half<Plan::kWindowBytes>(block);
  const __m256i upper = repeat_in_half<Plan::kWindowBytes>(block + Plan::kUpperWindow);
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
  return _mm512_shuffle_epi8(both, _mm512_load_si512(Plan::kGather.data()));
}

// Code K of every lane times 2^position.
template <std::uint32_t Bits, std::uint32_t K>
MOE_SIMD_INLINE Vec lane_codes(Words lanes) {
  using Plan = LanePlan<Bits, kLanes>;
  static_assert(!Plan::is_shifted(K));
  return _mm512_cvtepi32_ps(
      _mm512_and_si512(lanes, _mm512_load_si512(Plan::kMasks.data() + K * kLanes)));
}

// out[k * kLanes + l] = x[l * 2 + k] * factors[k * kLanes + l] for a block of 32 inputs.
MOE_SIMD_INLINE void arrange_inputs(const float* x, const float* factors, float* out) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const Vec a = load(x);
  const Vec b = load(x + kLanes);
  store(out, mul(_mm512_permutex2var_ps(a, even, b), load(factors)));
  store(out + kLanes, mul(_mm512_permutex2var_ps(a, odd, b), load(factors + kLanes)));
}

// One window of 4, 8 or 16 bytes, repeated over the register.
template <std::uint32_t Bytes>
MOE_SIMD_INLINE __m512i repeat_window(const std::byte* at) {
  if constexpr (Bytes == 4) {
    std::int32_t word = 0;
    std::memcpy(&word, at, 4);
    return _mm512_set1_epi32(word);
  } else if constexpr (Bytes == 8) {
    std::int64_t word = 0;
    std::memcpy(&word, at, 8);
    return _mm512_set1_epi64(word);
  } else {
    static_assert(Bytes == 16);
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
}

// The values 0, 1, 2 … repeated: a permutation reads only the low four bits of its index, so this
// turns codes of up to four bits into floats without masking off what stands above them.
template <std::uint32_t Bits>
MOE_SIMD_INLINE Vec code_values() {
  static_assert(Bits <= 4);
  constexpr int kMask = (1 << Bits) - 1;
  return _mm512_setr_ps(0 & kMask, 1 & kMask, 2 & kMask, 3 & kMask, 4 & kMask, 5 & kMask, 6 & kMask,
                        7 & kMask, 8 & kMask, 9 & kMask, 10 & kMask, 11 & kMask, 12 & kMask,
                        13 & kMask, 14 & kMask, 15 & kMask);
}

// Codes Index*kLanes … of the code block at `block`, as floats.
template <std::uint32_t Bits, std::uint32_t Index>
MOE_SIMD_INLINE Vec unpack_codes(const std::byte* block) {
  if constexpr (Bits == 8) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + Index * kLanes));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  } else {
    using Plan = CodeVector<Bits, kLanes, Index>;
    __m512i lanes = repeat_window<Plan::kWindowBytes>(block + Plan::kOffset);
    if constexpr (Plan::kNeedsGather) {
      lanes = _mm512_shuffle_epi8(lanes, _mm512_load_si512(Plan::kGather.data()));
    }
    const __m512i codes = _mm512_srlv_epi32(lanes, _mm512_load_si512(Plan::kShifts.data()));
    if constexpr (Bits <= 4) {
      return _mm512_permutexvar_ps(codes, code_values<Bits>());
    } else {
      return _mm512_cvtepi32_ps(_mm512_and_si512(codes, _mm512_set1_epi32((1 << Bits) - 1)));
    }
  }
}

// clang-format off
#include "runtime/cpu/simd_matmul.inc"
#include "runtime/cpu/simd_vector_ops.inc"
// clang-format on

constexpr Kernels kAvx512{
    .name = "avx512",
    .matmul = matmul,
    .dot = dot,
    .axpy = axpy,
    .swiglu = swiglu,
    .gated_delta_step = gated_delta_step,
};

}  // namespace

const Kernels& avx512_kernels() { return kAvx512; }

}  // namespace moepack

#endif
