// Inputs of products in integers: each token's values as bytes with a scale for every 32 of them.
// The definition, to the bit, is quantize_reference() in runtime/cpu/i8_reference.cpp:
//   scale = largest |x| of the group / 127,  code = round to nearest even(x * (127 / largest))
// and a group of zeros has scale 0. With a value that is not finite the group's scale is NaN, so
// that every product of the token is NaN too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/base/bytes.h"

namespace moepack {

constexpr std::size_t kInputGroup = 32;      // values that share a scale; groups begin at column 0
constexpr std::size_t kInputHalf = 16;       // values that share a sum, for weights scaled by 16
constexpr std::size_t kInputAlignment = 64;  // of every part, in bytes

// Borrowed. Token t's codes begin at codes + t * stride, its groups' numbers at t * groups(), its
// halves' at 2 * t * groups(). Each part is aligned; `stride` is a multiple of kInputAlignment and
// codes behind the last column are zero, and so are their numbers.
struct QuantizedRows {
  std::size_t stride = 0;              // >= columns
  std::int8_t* codes = nullptr;        // [tokens, stride], -127 … 127
  float* scales = nullptr;             // [tokens, groups]
  std::int32_t* minus_sums = nullptr;  // [tokens, 2 * groups]: of the codes of a half, negated
  float* sums = nullptr;               // [tokens, 2 * groups]: scale * sum of the codes of a half

  std::size_t groups() const { return stride / kInputGroup; }
  // The same from token `first` on.
  QuantizedRows from(std::size_t first) const {
    return {stride, codes + first * stride, scales + first * groups(),
            minus_sums + 2 * first * groups(), sums + 2 * first * groups()};
  }
};

constexpr std::size_t quantized_stride(std::uint64_t cols) {
  return align_up(cols, kInputAlignment);
}

}  // namespace moepack
