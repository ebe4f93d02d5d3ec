// The AVX-512 table. Here is what products of affine codes need of this level; the kernels
// themselves are in simd_*.inc.
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

#include "formats/base/bytes.h"
#include "formats/weights/ggml_blocks.h"
#include "formats/weights/qcodec.h"
#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/cpu_detect.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
// clang-format on

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

// The kLanes codes from Index*kLanes on of the code block at `block`, as floats.
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

// The kernel of a block format, or nullptr.
const BlockKernel* find_block_kernel(QFormatId id) {
  const BlockKernel* kernel = avx512_legacy_blocks(id);
  if (kernel == nullptr) kernel = avx512_k_blocks(id);
  return kernel != nullptr ? kernel : avx512_grid_blocks(id);
}

// clang-format off
#include "runtime/cpu/simd_matmul.inc"
#include "runtime/cpu/simd_vector_ops.inc"
// clang-format on

constexpr Kernels kAvx512{
    .name = "avx512",
    .bits = "avx512",
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
    .attention = &kAvx512Attention,
};

}  // namespace

const Kernels& avx512_kernels() {
  static const Kernels kTable = [] {
    Kernels table = kAvx512;
    table.codes = has_avx512_vnni(read_cpuid()) ? avx512dot_code_kernels() : avx2_code_kernels();
    table.delta_block = &avx512_delta_block();
    return table;
  }();
  return kTable;
}

}  // namespace moepack

#endif
