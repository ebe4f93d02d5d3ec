// Attention with Advanced SIMD of AArch64.
#if defined(__aarch64__)

#include <limits>

#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"
#include "runtime/cpu/simd_intrinsics_neon.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_neon.inc"
#include "runtime/cpu/simd_exponential.inc"
// clang-format on

constexpr std::size_t kTileRows = 4;

// The bits of an E4M3 number, moved up by seven, are those of a binary16 number 2^-8 times as
// large; the sign is moved up by eight.
MOE_SIMD_INLINE Vec widen_e4m3(const std::byte* at) {
  const int8x8_t codes = vld1_s8(reinterpret_cast<const std::int8_t*>(at));
  const uint16x8_t halves = vreinterpretq_u16_s16(vshlq_n_s16(vmovl_s8(codes), 7));
  return widen_f16(vandq_u16(halves, vdupq_n_u16(0xbfff)));
}

// clang-format off
#include "runtime/cpu/simd_attention.inc"
// clang-format on

}  // namespace

constexpr AttentionKernels kNeonAttention{
    .attend = attend, .merge = merge, .finish = finish, .rotate = rotate};

}  // namespace moepack

#endif
