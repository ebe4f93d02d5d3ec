// The AVX2 table. Here is what products of affine codes need of this level; the kernels themselves
// are in simd_*.inc.
#if defined(__x86_64__)

#include <immintrin.h>

#include <bit>
#include <cassert>
#include <cstring>

#include "formats/base/bytes.h"
#include "formats/weights/ggml_blocks.h"
#include "formats/weights/qcodec.h"
#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx2.inc"
// clang-format on

using Words = __m256i;  // kLanes 32-bit words of codes

// Puts windows of 8 or 16 bytes into the halves of a register.
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

// The kLanes codes from Index*kLanes on of the code block at `block`, as floats.
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

// The kernel of a block format, or nullptr.
const BlockKernel* find_block_kernel(QFormatId id) {
  const BlockKernel* kernel = avx2_legacy_blocks(id);
  if (kernel == nullptr) kernel = avx2_k_blocks(id);
  return kernel != nullptr ? kernel : avx2_grid_blocks(id);
}

// clang-format off
#include "runtime/cpu/simd_matmul.inc"
#include "runtime/cpu/simd_vector_ops.inc"
// clang-format on

constexpr Kernels kAvx2{
    .name = "avx2",
    .bits = "avx2",
    .supports = supports,
    .matmul = matmul,
    .dot = dot,
    .axpy = axpy,
    .swiglu = swiglu,
    .clamped_swiglu = clamped_swiglu,
    .geglu = geglu,
    .gated_delta_step = gated_delta_step,
    .codes = {},
    .delta_block = nullptr,
    .attention = &kAvx2Attention,
};

}  // namespace

const Kernels& avx2_kernels() {
  static const Kernels kTable = [] {
    Kernels table = kAvx2;
    table.codes = avx2_code_kernels();
    table.delta_block = &avx2_delta_block();
    return table;
  }();
  return kTable;
}

}  // namespace moepack

#endif
