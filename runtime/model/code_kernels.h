// Products in integers: inputs as bytes with a scale for every 32 of them, weights as unsigned
// codes of a byte with scales of their own (runtime/cpu/code_rows.h says which). Part of the table
// of kernels, with the same rules: pure functions, no allocation, no failure.
//
// Everything here is defined to the bit, by runtime/cpu/codes_reference.cpp, and every table gives
// those bits for the formats that it supports: sums of codes are exact integers, and what is added
// up in float32 is added in the order of columns, for each row and token by itself. So a result
// depends neither on the other tokens of a call nor on rows, threads or the instruction set.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/bytes.h"
#include "formats/weights/qformat.h"

namespace moepack {

constexpr std::size_t kInputGroup = 32;  // inputs of a block; blocks begin at column 0

// 32 inputs of a token, with one digit:
//   scale = largest |x| / 127, code = nearest even integer of x * (127 / largest |x|),
// zeros where the largest is below kSmallestInput. Where an input is not finite, scale and sums are
// NaN and codes zero, so that every product of the token is NaN too.
//
// With two digits the scale is the least power of two by which no code is beyond 127 * 256, and a
// code is 256 * high + low: the nearest high, and what it leaves, of which -128 becomes -127. Two
// blocks: the first has the high digits, and scale and sums of the whole codes; the second has the
// low digits and zeros. A block is a cache line.
struct alignas(64) InputBlock {
  std::int8_t codes[kInputGroup];  // -127 … 127
  float scale;
  std::int32_t minus_sum;           // of the codes, negated
  std::int32_t minus_half_sums[2];  // of the first and the last 16
  float sum;                        // scale * sum of the codes
  float half_sums[2];
  float exponent;  // with two digits: the scale is 2^exponent; 0 is 2^-infinity, NaN is NaN
};
static_assert(sizeof(InputBlock) == 64);

constexpr std::size_t kMostDigits = 2;

constexpr float largest_code(std::size_t digits) { return digits == 1 ? 127.0F : 127.0F * 256.0F; }

// Below 2^-112 the factor largest_code / largest would overflow.
constexpr float kSmallestInput = 0x1p-112F;

// What a block's codes are multiplied with, and its inputs to become codes.
struct InputScale {
  float scale;
  float factor;
  float exponent;
};

// largest: the largest |x|, finite and at least kSmallestInput.
inline InputScale input_scale(float largest, std::size_t digits) {
  const float limit = largest_code(digits);
  if (digits == 1) return {largest / limit, limit / largest, 0.0F};
  constexpr std::uint32_t kMantissa = 23;
  constexpr std::uint32_t kBias = 127;
  // The exponent goes up by one where the mantissa is beyond that of the largest code.
  const auto limit_bits = std::bit_cast<std::uint32_t>(limit);
  const std::uint32_t carry = (1U << kMantissa) - 1 - (limit_bits & ((1U << kMantissa) - 1));
  const std::uint32_t exponent = ((std::bit_cast<std::uint32_t>(largest) + carry) >> kMantissa) -
                                 ((limit_bits >> kMantissa) - kBias);
  return {std::bit_cast<float>(exponent << kMantissa),
          std::bit_cast<float>((2 * kBias - exponent) << kMantissa),
          static_cast<float>(static_cast<std::int32_t>(exponent - kBias))};
}

// Blocks of a token of `cols` inputs.
constexpr std::size_t input_blocks(std::uint64_t cols, std::size_t digits) {
  return digits * div_up(cols, kInputGroup);
}

// Rows [row_begin, row_end) of a product: y[t * y_stride + r] for t < tokens.
struct CodeProduct {
  const QMatrixView& w;
  const InputBlock* const* x;  // [tokens], of each [cols / 32, digits]
  std::size_t digits;
  std::size_t tokens;
  std::uint64_t row_begin;  // a multiple of kCodeRows
  std::uint64_t row_end;    // one too, or w.rows
  float* y;
  std::size_t y_stride;
  std::span<float> scratch;  // matmul_scratch_floats(w.cols), of this call alone
  // Codes that this thread probably reads behind these rows, of any matrix; null: nobody knows.
  // They are asked for while the last of these are multiplied. Changes no result, and is not read
  // through: any address will do.
  const std::byte* read_next = nullptr;
};

struct CodeKernels {
  // Whether multiply() takes matrices of `format`. Those of other formats are multiplied in floats.
  bool (*supports)(const WeightFormat& format) = nullptr;

  // Whether it reads panels of that format (formats/weights/row_order.h) as they are, which is then
  // the faster order. Panels of the others are restored row by row.
  bool (*reads_panels)(const WeightFormat& format) = nullptr;

  // x: [cols], cols a multiple of 32; out: [cols / 32, digits]. 1 <= digits <= kMostDigits.
  void (*quantize)(const float* x, std::size_t cols, std::size_t digits, InputBlock* out) = nullptr;

  // The sum over the blocks of a row, each fma(integer sum, weight scale * input scale, …) and,
  // with biases, then fma(bias, sum of inputs, …).
  void (*multiply)(const CodeProduct& product) = nullptr;
};

// Rows that these kernels take together.
constexpr std::size_t kCodeRows = 16;
// Tokens that meet all rows of a call before the next ones do: their blocks, 8 KiB a token of 2048
// inputs in two digits, stay in a second-level cache meanwhile.
constexpr std::size_t kPanelTokens = 64;

}  // namespace moepack
