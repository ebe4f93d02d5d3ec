// Shapes that the SIMD tables share. Sums are formed per column tile, so kColTile is part of what a
// table computes; the other numbers only group work and never change a result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/bytes.h"

namespace moepack {

// Calls with at most this many tokens multiply affine codes without forming the weights.
constexpr std::size_t kMaxFusedTokens = 3;
// More tokens: weights are decoded in blocks of kRowBlock rows by kColTile columns (16 KiB, half of
// a small first-level cache). A multiple of every group size.
constexpr std::size_t kRowBlock = 8;
constexpr std::size_t kColTile = 512;

constexpr std::size_t kMaxLanes = 16;
// Affine codes are unpacked in blocks of this many, the smallest group: `bits` 32-bit words.
constexpr std::size_t kCodeBlock = 32;

// Floats between the group sums of two tokens: a whole number of vectors for any group size.
constexpr std::size_t group_sum_stride(std::uint64_t cols) {
  return align_up(div_up(cols, kCodeBlock), kMaxLanes);
}

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
  // Per lane the window's byte with the code's first bit and, where the code goes on, the next.
  static constexpr std::array<std::uint8_t, Lanes * 4> make_gather() {
    std::array<std::uint8_t, Lanes * 4> bytes{};
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
  alignas(64) static constexpr std::array<std::uint8_t, Lanes* 4> kGather = make_gather();
};

}  // namespace moepack
