// Shapes that the SIMD tables share. Sums are formed per column tile, so kColTile is part of what a
// table computes; the other numbers only group work and never change a result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/bytes.h"
#include "runtime/model/kernels.h"

// MOE_INLINE keeps vectors in registers. gcc's sanitizer builds go without it: checks of every
// load, copied into every caller, would take gcc minutes for a file. clang does not define these
// two names.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOE_INLINE __attribute__((noinline)) inline
#else
#define MOE_INLINE __attribute__((always_inline)) inline
#endif

namespace moepack {

// Affine products of at most this many tokens are formed without decoding the weights, two tokens
// at a time.
constexpr std::size_t kMaxFusedTokens = 6;
// For more tokens, weights are decoded in blocks of kRowBlock rows by kColTile columns (16 KiB,
// half of a small first-level cache). kColTile is a multiple of every group and block size.
constexpr std::size_t kRowBlock = kMatmulRows;
constexpr std::size_t kColTile = 512;

constexpr std::size_t kMaxLanes = 16;
// Affine codes are unpacked in blocks of this many, which is the smallest group; a block takes
// `bits` 32-bit words.
constexpr std::size_t kCodeBlock = 32;

// Rows that a fused call takes at once, so that their chains of additions run side by side.
constexpr std::size_t kFusedRows = 4;

// Scratch of a fused call, in this order; each part a whole number of vectors, the first aligned:
//   inputs   [kMaxFusedTokens, input_stride]  rearranged
//   sums     [kMaxFusedTokens, group_stride]  of the inputs of a group
//   scales   [kFusedRows, group_stride]       widened to float
//   biases   [kFusedRows, group_stride]
constexpr std::size_t kScratchAlignFloats = kMaxLanes;
constexpr std::size_t input_stride(std::uint64_t cols) { return align_up(cols, kMaxLanes); }
constexpr std::size_t group_stride(std::uint64_t cols) {
  return align_up(div_up(cols, kCodeBlock), kMaxLanes);
}
constexpr std::size_t fused_scratch_floats(std::uint64_t cols) {
  return kMaxFusedTokens * (input_stride(cols) + group_stride(cols)) +
         2 * kFusedRows * group_stride(cols);
}

// ---- ggml's blocks, few tokens ------------------------------------------------------------------
// Bytes of codes are used as 32-bit lanes, four codes a lane and plane of bits: a unit is four
// vectors of codes. A call rearranges its inputs likewise. Scratch, per token:
//   units [div_up(cols, kMaxUnit) * kMaxUnit / unit] of five vectors: the inputs that meet byte
//         0, 1, 2, 3 of the lanes, scaled to undo the byte's position, and their sums unscaled,
//         times the factor of the format
//   sums  [div_up(cols, kSuperBlock), kBlockSums]  of the inputs of sub-blocks, negated
constexpr std::size_t kMaxUnit = 4 * kMaxLanes;
constexpr std::size_t kSuperBlock = 256;  // weights in the blocks of K- and I-quants
constexpr std::size_t kBlockSums = 16;
constexpr std::size_t block_units_floats(std::uint64_t cols) {
  return align_up(cols, kMaxUnit) / 4 * 5;
}
constexpr std::size_t block_input_floats(std::uint64_t cols) {
  return block_units_floats(cols) + div_up(cols, kSuperBlock) * kBlockSums;
}
constexpr std::size_t block_scratch_floats(std::uint64_t cols) {
  return kMaxFusedTokens * block_input_floats(cols);
}

// ---- ggml's blocks, few tokens, in integers -----------------------------------------------------
// Scratch: per token records of inputs (simd_digits.inc), at most ten vectors for 128 inputs; then,
// for one token at a time, the units of 32 inputs each and their inverses, read in whole vectors.
constexpr std::size_t digit_record_floats(std::uint64_t cols) {
  return align_up(cols, 128) / 128 * 10 * kMaxLanes;
}
constexpr std::size_t digit_units(std::uint64_t cols) {
  return align_up(div_up(cols, 32), kMaxLanes) + kMaxLanes;
}
constexpr std::size_t digit_scratch_floats(std::uint64_t cols) {
  return kMaxFusedTokens * digit_record_floats(align_up(cols, kSuperBlock)) + 2 * digit_units(cols);
}

// One call of Kernels::matmul with its scratch aligned.
struct MatmulCall {
  const QMatrixView& w;
  const float* x;
  std::size_t x_stride;
  std::size_t tokens;
  std::uint64_t row_begin;
  std::uint64_t row_end;
  float* y;
  std::size_t y_stride;
  float* scratch;
};

// Vectors that cross cache lines cost twice as much, so kernels work in whole lines of scratch.
inline float* align_scratch(std::span<float> scratch) {
  const auto at = reinterpret_cast<std::uintptr_t>(scratch.data());
  const std::uintptr_t skipped = align_up(at, kScratchAlignFloats * sizeof(float)) - at;
  return scratch.data() + skipped / sizeof(float);
}

// How a whole code block is brought into `Lanes` lanes of 32 bits for fused products. Lane l holds
// codes l*kPerLane and on, so that one gather serves kPerLane vectors. The codes of vector k are
// masked where they stand, which gives integers code * 2^position; the inputs that meet them are
// arranged in the same order and scaled by 2^-position. The lower half of the lanes reads a window
// at the block's start, the upper half a window that ends with the block.
template <std::uint32_t Bits, std::uint32_t Lanes>
struct LanePlan {
  static constexpr std::uint32_t kPerLane = kCodeBlock / Lanes;
  static constexpr std::uint32_t kLaneBits = kPerLane * Bits;
  static constexpr std::uint32_t kBlockBytes = kCodeBlock * Bits / 8;
  static constexpr std::uint32_t kWindowBytes = kBlockBytes / 2 <= 8 && kBlockBytes < 16 ? 8 : 16;
  static constexpr std::uint32_t kUpperWindow = kBlockBytes - kWindowBytes;
  static constexpr bool kOneWindow = kUpperWindow == 0;
  static_assert(kBlockBytes >= kWindowBytes && kBlockBytes / 2 <= kWindowBytes);
  // The lanes are the block's own 32-bit words.
  static constexpr bool kIsPlain = kLaneBits == 32;

  // Bit of code k within its lane.
  static constexpr std::uint32_t position(std::uint32_t lane, std::uint32_t k) {
    return lane * kLaneBits % 8 + k * Bits;
  }
  // The only code that would reach the sign bit is shifted down instead of masked.
  static constexpr bool is_shifted(std::uint32_t k) { return position(0, k) + Bits == 32; }

  static constexpr std::array<std::uint8_t, std::size_t{Lanes} * 4> make_gather() {
    std::array<std::uint8_t, std::size_t{Lanes} * 4> bytes{};
    for (std::uint32_t lane = 0; lane < Lanes; ++lane) {
      const std::uint32_t window = lane < Lanes / 2 ? 0 : kUpperWindow;
      const std::uint32_t first = lane * kLaneBits / 8;
      const std::uint32_t last = ((lane + 1) * kLaneBits - 1) / 8;
      for (std::uint32_t i = 0; i < 4; ++i) {
        const bool wanted = first + i <= last;
        bytes[lane * 4 + i] = wanted ? static_cast<std::uint8_t>(first + i - window) : 0x80;
      }
    }
    return bytes;
  }
  static constexpr std::array<std::uint32_t, kCodeBlock> make_masks() {
    std::array<std::uint32_t, kCodeBlock> masks{};
    for (std::uint32_t i = 0; i < kCodeBlock; ++i) {
      masks[i] = ((1U << Bits) - 1U) << position(i % Lanes, i / Lanes);
    }
    return masks;
  }
  static constexpr std::array<float, kCodeBlock> make_factors() {
    std::array<float, kCodeBlock> factors{};
    for (std::uint32_t i = 0; i < kCodeBlock; ++i) {
      const std::uint32_t shift = is_shifted(i / Lanes) ? 0 : position(i % Lanes, i / Lanes);
      factors[i] = 1.0F / static_cast<float>(1U << shift);
    }
    return factors;
  }
  alignas(64) static constexpr std::array<std::uint8_t, std::size_t{Lanes}* 4> kGather =
      make_gather();
  // Element k*Lanes + l belongs to code k of lane l.
  alignas(64) static constexpr std::array<std::uint32_t, kCodeBlock> kMasks = make_masks();
  alignas(64) static constexpr std::array<float, kCodeBlock> kFactors = make_factors();
};

// How vector number `Index` of a code block (codes Index*Lanes …) is brought into 32-bit lanes:
// kWindowBytes are read at kOffset and repeated over the register; each lane takes up to four of
// them and shifts its code down. No byte beyond the block is read.
template <std::uint32_t Bits, std::uint32_t Lanes, std::uint32_t Index>
struct CodeVector {
  static constexpr std::uint32_t kBlockBytes = kCodeBlock * Bits / 8;
  static constexpr std::uint32_t kSpanBytes = Lanes * Bits / 8;
  static constexpr std::uint32_t kFirstByte = Index * kSpanBytes;
  static constexpr std::uint32_t kWindowBytes = kSpanBytes <= 4 ? 4 : kSpanBytes <= 8 ? 8 : 16;
  // Reading at a multiple of the window where that covers the codes lets neighbours share a read.
  static constexpr std::uint32_t kRounded = kFirstByte / kWindowBytes * kWindowBytes;
  static constexpr std::uint32_t kLast = kBlockBytes - kWindowBytes;
  static constexpr std::uint32_t kOffset =
      kRounded <= kLast && kFirstByte + kSpanBytes <= kRounded + kWindowBytes ? kRounded
      : kFirstByte < kLast                                                    ? kFirstByte
                                                                              : kLast;
  static_assert(Lanes * Bits % 8 == 0 && kBlockBytes >= kWindowBytes);

  static constexpr std::uint32_t bit_in_window(std::uint32_t lane) {
    return (kFirstByte - kOffset) * 8 + lane * Bits;
  }
  // A window of four bytes is a lane already; wider ones are gathered byte by byte.
  static constexpr bool kNeedsGather = kWindowBytes > 4;

  static constexpr std::array<std::uint32_t, Lanes> make_shifts() {
    std::array<std::uint32_t, Lanes> shifts{};
    for (std::uint32_t lane = 0; lane < Lanes; ++lane) {
      shifts[lane] = kNeedsGather ? bit_in_window(lane) % 8 : bit_in_window(lane);
    }
    return shifts;
  }
  // For each lane, the window's byte with the code's first bit and, where the code goes on, the
  // byte after it.
  static constexpr std::array<std::uint8_t, std::size_t{Lanes} * 4> make_gather() {
    std::array<std::uint8_t, std::size_t{Lanes} * 4> bytes{};
    for (std::uint32_t lane = 0; lane < Lanes; ++lane) {
      const std::uint32_t bit = bit_in_window(lane);
      const bool goes_on = bit % 8 + Bits > 8;
      bytes[lane * 4] = static_cast<std::uint8_t>(bit / 8);
      bytes[lane * 4 + 1] = goes_on ? static_cast<std::uint8_t>(bit / 8 + 1) : 0x80;
      bytes[lane * 4 + 2] = 0x80;
      bytes[lane * 4 + 3] = 0x80;
    }
    return bytes;
  }
  alignas(64) static constexpr std::array<std::uint32_t, Lanes> kShifts = make_shifts();
  alignas(64) static constexpr std::array<std::uint8_t, std::size_t{Lanes}* 4> kGather =
      make_gather();
};

}  // namespace moepack
