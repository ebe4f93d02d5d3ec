// Weight formats as unsigned codes of a byte, which is how products in integers see them:
//   w[c] = scale[c / group] * (code[c] - zero)         or, where the format has minima,
//   w[c] = scale[c / group] * code[c] + bias[c / group]
// with codes that are exactly those of the format (or the entry of its grid or table, raised by
// `zero`, a power of two, so that nothing is negative), and scales that are the format's own
// product of scales in float32. Larger groups of a format are repeated. This is the definition that
// every fast unpacker equals byte for byte; it agrees with decode_row to the rounding of one
// product and one sum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "formats/weights/qformat.h"

namespace moepack {

struct CodeShape {
  std::uint32_t group = 32;     // columns that share a scale: 16 or 32
  std::uint32_t zero_bits = 0;  // zero = 2^zero_bits; 0: the format has biases instead
  bool has_bias = false;
  std::uint32_t largest_code = 0;  // 255 at most; sums of two products fit 16 bits up to 127
};

// nullopt: the format is not known in codes (plain floats).
std::optional<CodeShape> code_shape(const WeightFormat& format);

// Row `row` of `matrix`. codes: [cols]; scales, biases: [cols / group], biases untouched without
// them. The format has a shape.
void unpack_code_row(const QMatrixView& matrix, std::uint64_t row, std::span<std::uint8_t> codes,
                     std::span<float> scales, std::span<float> biases);

}  // namespace moepack
