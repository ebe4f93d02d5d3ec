// The table of AArch64's Advanced SIMD. Here is what products of affine codes need of this level;
// the kernels themselves are in simd_*.inc. Products of ggml's blocks with inputs in float32 have
// no kernels here: their weights are decoded by the scalar decoder.
#if defined(__aarch64__)

#include <cassert>

#include "formats/base/bytes.h"
#include "formats/weights/ggml_blocks.h"
#include "formats/weights/qcodec.h"
#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"
#include "runtime/cpu/simd_intrinsics_neon.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_neon.inc"
// clang-format on

struct Words {  // kLanes 32-bit words of codes
  uint32x4_t low;
  uint32x4_t high;
};

MOE_SIMD_INLINE uint8x16_t load_bytes(const std::byte* at) {
  return vld1q_u8(reinterpret_cast<const std::uint8_t*>(at));
}
MOE_SIMD_INLINE Vec to_floats(Words w) { return {vcvtq_f32_u32(w.low), vcvtq_f32_u32(w.high)}; }

// A window of 4, 8 or 16 bytes, repeated.
template <std::uint32_t Bytes>
MOE_SIMD_INLINE uint8x16_t repeat_window(const std::byte* at) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16);
  if constexpr (Bytes == 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, 4);
    return vreinterpretq_u8_u32(vdupq_n_u32(word));
  } else if constexpr (Bytes == 8) {
    const uint8x8_t half = vld1_u8(reinterpret_cast<const std::uint8_t*>(at));
    return vcombine_u8(half, half);
  } else {
    return load_bytes(at);
  }
}
MOE_SIMD_INLINE uint32x4_t shift_down_by(uint32x4_t w, uint32x4_t bits) {
  return vshlq_u32(w, vnegq_s32(vreinterpretq_s32_u32(bits)));
}
// Each byte of a lane by its number in the window of the lane's half; other numbers give zeros.
MOE_SIMD_INLINE Words gather(uint8x16_t lower, uint8x16_t upper,
                             const std::array<std::uint8_t, 4 * kLanes>& from) {
  return {vreinterpretq_u32_u8(vqtbl1q_u8(lower, vld1q_u8(from.data()))),
          vreinterpretq_u32_u8(vqtbl1q_u8(upper, vld1q_u8(from.data() + 16)))};
}

// The lanes of a code block, as LanePlan says.
template <std::uint32_t Bits>
MOE_SIMD_INLINE Words gather_lanes(const std::byte* block) {
  using Plan = LanePlan<Bits, kLanes>;
  if constexpr (Plan::kIsPlain) {
    return {vreinterpretq_u32_u8(load_bytes(block)), vreinterpretq_u32_u8(load_bytes(block + 16))};
  } else {
    const uint8x16_t lower = repeat_window<Plan::kWindowBytes>(block);
    if constexpr (Plan::kOneWindow) {
      return gather(lower, lower, Plan::kGather);
    } else {
      return gather(lower, repeat_window<Plan::kWindowBytes>(block + Plan::kUpperWindow),
                    Plan::kGather);
    }
  }
}

// Code K of every lane times 2^position.
template <std::uint32_t Bits, std::uint32_t K>
MOE_SIMD_INLINE Vec lane_codes(Words lanes) {
  using Plan = LanePlan<Bits, kLanes>;
  if constexpr (Plan::is_shifted(K)) {
    const int32x4_t down = vdupq_n_s32(-static_cast<std::int32_t>(K * Bits));
    return to_floats({vshlq_u32(lanes.low, down), vshlq_u32(lanes.high, down)});
  } else {
    const std::uint32_t* masks = Plan::kMasks.data() + K * kLanes;
    return to_floats(
        {vandq_u32(lanes.low, vld1q_u32(masks)), vandq_u32(lanes.high, vld1q_u32(masks + 4))});
  }
}

// Rows of four times four inputs as columns.
MOE_SIMD_INLINE void turn_inputs(const float* x, float32x4_t (&out)[4]) {
  const float32x4x4_t columns = vld4q_f32(x);
  MOE_UNROLL
  for (std::size_t i = 0; i < 4; ++i) out[i] = columns.val[i];
}

// out[k * kLanes + l] = x[l * 4 + k] * factors[k * kLanes + l] for a block of 32 inputs.
MOE_SIMD_INLINE void arrange_inputs(const float* x, const float* factors, float* out) {
  float32x4_t low[4];
  float32x4_t high[4];
  turn_inputs(x, low);
  turn_inputs(x + 16, high);
  MOE_UNROLL
  for (std::size_t k = 0; k < 4; ++k) {
    store(out + k * kLanes, mul({low[k], high[k]}, load(factors + k * kLanes)));
  }
}

// The kLanes codes from Index*kLanes on of the code block at `block`, as floats.
template <std::uint32_t Bits, std::uint32_t Index>
MOE_SIMD_INLINE Vec unpack_codes(const std::byte* block) {
  if constexpr (Bits == 8) {
    const uint16x8_t halves =
        vmovl_u8(vld1_u8(reinterpret_cast<const std::uint8_t*>(block + Index * kLanes)));
    return to_floats({vmovl_u16(vget_low_u16(halves)), vmovl_high_u16(halves)});
  } else {
    using Plan = CodeVector<Bits, kLanes, Index>;
    const uint8x16_t window = repeat_window<Plan::kWindowBytes>(block + Plan::kOffset);
    Words lanes{vreinterpretq_u32_u8(window), vreinterpretq_u32_u8(window)};
    if constexpr (Plan::kNeedsGather) lanes = gather(window, window, Plan::kGather);
    const Words shifts{vld1q_u32(Plan::kShifts.data()), vld1q_u32(Plan::kShifts.data() + 4)};
    const uint32x4_t mask = vdupq_n_u32((1U << Bits) - 1U);
    return to_floats({vandq_u32(shift_down_by(lanes.low, shifts.low), mask),
                      vandq_u32(shift_down_by(lanes.high, shifts.high), mask)});
  }
}

// No kernels of block formats.
const BlockKernel* find_block_kernel(QFormatId /*id*/) { return nullptr; }

// clang-format off
#include "runtime/cpu/simd_matmul.inc"
#include "runtime/cpu/simd_vector_ops.inc"
// clang-format on

}  // namespace

const Kernels& neon_kernels() {
  static const Kernels kTable{
      .name = "neon",
      .bits = "neon",
      .supports = supports,
      .matmul = matmul,
      .dot = dot,
      .axpy = axpy,
      .swiglu = swiglu,
      .clamped_swiglu = clamped_swiglu,
      .geglu = geglu,
      .gated_delta_step = gated_delta_step,
      .codes = neon_code_kernels(),
      .delta_block = &neon_delta_block(),
      .attention = &kNeonAttention,
  };
  return kTable;
}

}  // namespace moepack

#endif
