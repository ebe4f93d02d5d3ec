// AVX2 + FMA + F16C: eight floats a vector. The primitives; the kernels made of them stand in
// simd_*.inc.
#if defined(__x86_64__)

#include <immintrin.h>

#include <bit>
#include <cassert>
#include <cstring>

#include "formats/bytes.h"
#include "formats/ggml_blocks.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"

#define MOE_TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define MOE_SIMD MOE_TARGET_AVX2
#define MOE_SIMD_INLINE MOE_TARGET_AVX2 __attribute__((always_inline)) inline

namespace moepack {
namespace {

using Vec = __m256;
constexpr std::size_t kLanes = 8;
// Tokens and column vectors that a register block holds: 4 rows x 3 tokens, 4 state vectors.
constexpr std::size_t kTokenBlock = 3;
constexpr std::size_t kDeltaVectors = 4;

MOE_SIMD_INLINE Vec zero() { return _mm256_setzero_ps(); }
MOE_SIMD_INLINE Vec broadcast(float value) { return _mm256_set1_ps(value); }
MOE_SIMD_INLINE Vec load(const float* at) { return _mm256_loadu_ps(at); }
MOE_SIMD_INLINE void store(float* at, Vec value) { _mm256_storeu_ps(at, value); }
MOE_SIMD_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
MOE_SIMD_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
MOE_SIMD_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
MOE_SIMD_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
// a * b + c, rounded once.
MOE_SIMD_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
// The second operand where either is NaN.
MOE_SIMD_INLINE Vec min_or_second(Vec a, Vec b) { return _mm256_min_ps(a, b); }
MOE_SIMD_INLINE Vec max_or_second(Vec a, Vec b) { return _mm256_max_ps(a, b); }
MOE_SIMD_INLINE Vec round_to_integer(Vec a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// a * 2^n for integral n in [-252, 254]: two factors, so that results may be subnormal or infinite.
MOE_SIMD_INLINE Vec scale_by_power(Vec a, Vec n) {
  const __m256i power = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(power, 1);
  const __m256i rest = _mm256_sub_epi32(power, half);
  const __m256i bias = _mm256_set1_epi32(127);
  const Vec first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const Vec second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return mul(mul(a, first), second);
}

// All ones in the first `count` lanes, count < kLanes.
MOE_SIMD_INLINE __m256i first_lanes(std::size_t count) {
  alignas(64) static constexpr std::int32_t kOnesThenZeros[2 * kLanes] = {-1, -1, -1, -1,
                                                                          -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOnesThenZeros + (kLanes - count)));
}
// The first `count` < kLanes floats, zeros behind them; nothing beyond is touched.
MOE_SIMD_INLINE Vec load_first(const float* at, std::size_t count) {
  return _mm256_maskload_ps(at, first_lanes(count));
}
MOE_SIMD_INLINE void store_first(float* at, Vec value, std::size_t count) {
  _mm256_maskstore_ps(at, first_lanes(count), value);
}

// Lane sums of four vectors, each in the order ((0+1)+(2+3)) + ((4+5)+(6+7)).
MOE_SIMD_INLINE __m128 reduce(Vec a, Vec b, Vec c, Vec d) {
  const Vec sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

using Half = __m128i;  // kLanes 16-bit elements
MOE_SIMD_INLINE Half load_half(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}
MOE_SIMD_INLINE Half load_half_first(const std::byte* at, std::size_t count) {
  std::uint64_t low = 0;
  std::uint64_t rest = 0;
  const std::byte* from = at;
  if ((count & 4U) != 0) {
    std::memcpy(&low, from, 8);
    from += 8;
  }
  if ((count & 2U) != 0) {
    std::uint32_t two = 0;
    std::memcpy(&two, from, 4);
    rest = two;
    from += 4;
  }
  if ((count & 1U) != 0) {
    std::uint16_t one = 0;
    std::memcpy(&one, from, 2);
    rest |= std::uint64_t{one} << ((count & 2U) * 16);
  }
  if ((count & 4U) == 0) return _mm_set_epi64x(0, std::bit_cast<std::int64_t>(rest));
  return _mm_set_epi64x(std::bit_cast<std::int64_t>(rest), std::bit_cast<std::int64_t>(low));
}
MOE_SIMD_INLINE Vec widen_f16(Half bits) { return _mm256_cvtph_ps(bits); }
MOE_SIMD_INLINE Vec widen_bf16(Half bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// One 16-bit float in every lane.
MOE_SIMD_INLINE Vec repeat_f16(const std::byte* at) {
  std::int16_t value = 0;
  std::memcpy(&value, at, 2);
  return _mm256_cvtph_ps(_mm_set1_epi16(value));
}
MOE_SIMD_INLINE Vec repeat_bf16(const std::byte* at) {
  std::int16_t value = 0;
  std::memcpy(&value, at, 2);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_set1_epi16(value), 16));
}

using Words = __m256i;  // kLanes 32-bit words of codes

// Windows of 8 or 16 bytes in the halves of a register.
template <std::uint32_t Bytes>
MOE_SIMD_INLINE __m256i repeat_window(const std::byte* at) {
  static_assert(Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 8) {
    std::int64_t word = 0;
    std::memcpy(&word, at, 8);
    return _mm256_set1_epi64x(word);
  } else {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
}
template <std::uint32_t Bytes>
MOE_SIMD_INLINE __m256i two_windows(const std::byte* lower, const std::byte* upper) {
  // A repeated load takes no arithmetic port, and neither does choosing halves of two.
  return _mm256_blend_epi32(repeat_window<Bytes>(lower), repeat_window<Bytes>(upper), 0xf0);
}

// The lanes of a code block, as LanePlan says.
template <std::uint32_t Bits>
MOE_SIMD_INLINE Words gather_lanes(const std::byte* block) {
  using Plan = LanePlan<Bits, kLanes>;
  if constexpr (Plan::kIsPlain) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block));
  } else {
    __m256i both;
    if constexpr (Plan::kOneWindow) {
      both = repeat_window<Plan::kWindowBytes>(block);
    } else {
      both = two_windows<Plan::kWindowBytes>(block, block + Plan::kUpperWindow);
    }
    return _mm256_shuffle_epi8(
        both, _mm256_load_si256(reinterpret_cast<const __m256i*>(Plan::kGather.data())));
  }
}

// Code K of every lane times 2^position.
template <std::uint32_t Bits, std::uint32_t K>
MOE_SIMD_INLINE Vec lane_codes(Words lanes) {
  using Plan = LanePlan<Bits, kLanes>;
  if constexpr (Plan::is_shifted(K)) {
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(lanes, K * Bits));
  } else {
    return _mm256_cvtepi32_ps(_mm256_and_si256(
        lanes,
        _mm256_load_si256(reinterpret_cast<const __m256i*>(Plan::kMasks.data() + K * kLanes))));
  }
}

// out[k * kLanes + l] = x[l * 4 + k] * factors[k * kLanes + l] for a block of 32 inputs: 4 x 4
// transposes, one in each half of the registers.
MOE_SIMD_INLINE void arrange_inputs(const float* x, const float* factors, float* out) {
  const Vec a = _mm256_set_m128(_mm_loadu_ps(x + 16), _mm_loadu_ps(x));
  const Vec b = _mm256_set_m128(_mm_loadu_ps(x + 20), _mm_loadu_ps(x + 4));
  const Vec c = _mm256_set_m128(_mm_loadu_ps(x + 24), _mm_loadu_ps(x + 8));
  const Vec d = _mm256_set_m128(_mm_loadu_ps(x + 28), _mm_loadu_ps(x + 12));
  const Vec ac_low = _mm256_unpacklo_ps(a, c);   // a0 c0 a1 c1
  const Vec ac_high = _mm256_unpackhi_ps(a, c);  // a2 c2 a3 c3
  const Vec bd_low = _mm256_unpacklo_ps(b, d);
  const Vec bd_high = _mm256_unpackhi_ps(b, d);
  store(out, mul(_mm256_unpacklo_ps(ac_low, bd_low), load(factors)));
  store(out + 8, mul(_mm256_unpackhi_ps(ac_low, bd_low), load(factors + 8)));
  store(out + 16, mul(_mm256_unpacklo_ps(ac_high, bd_high), load(factors + 16)));
  store(out + 24, mul(_mm256_unpackhi_ps(ac_high, bd_high), load(factors + 24)));
}

// Codes Index*kLanes … of the code block at `block`, as floats.
template <std::uint32_t Bits, std::uint32_t Index>
MOE_SIMD_INLINE Vec unpack_codes(const std::byte* block) {
  if constexpr (Bits == 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + Index * kLanes));
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  } else {
    using Plan = CodeVector<Bits, kLanes, Index>;
    const std::byte* window = block + Plan::kOffset;
    __m256i lanes;
    if constexpr (Plan::kNeedsGather) {
      static_assert(Plan::kWindowBytes == 8);
      std::int64_t word = 0;
      std::memcpy(&word, window, 8);
      lanes = _mm256_shuffle_epi8(
          _mm256_set1_epi64x(word),
          _mm256_load_si256(reinterpret_cast<const __m256i*>(Plan::kGather.data())));
    } else {
      std::int32_t word = 0;
      std::memcpy(&word, window, 4);
      lanes = _mm256_set1_epi32(word);
    }
    const __m256i shifts =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(Plan::kShifts.data()));
    const __m256i codes =
        _mm256_and_si256(_mm256_srlv_epi32(lanes, shifts), _mm256_set1_epi32((1 << Bits) - 1));
    return _mm256_cvtepi32_ps(codes);
  }
}

// clang-format off
#include "runtime/cpu/simd_matmul.inc"
#include "runtime/cpu/simd_vector_ops.inc"
// clang-format on

constexpr Kernels kAvx2{
    .name = "avx2",
    .matmul = matmul,
    .dot = dot,
    .axpy = axpy,
    .swiglu = swiglu,
    .gated_delta_step = gated_delta_step,
};

}  // namespace

const Kernels& avx2_kernels() { return kAvx2; }

}  // namespace moepack

#endif
