// What the bytes of each weight format mean: the scalar decoder is the definition, and every fast
// kernel is tested against it.
#pragma once

#include <cstdint>
#include <span>

#include "formats/weights/qformat.h"

namespace moepack {

// Writes row `row` of `matrix` to out[0 … matrix.cols). Affine: code * scale + bias, each operation
// rounded to float32, scale and bias widened from their stored type.
// Blocks: formats/weights/ggml_blocks.h.
// Sources: MLX's affine packing (LSB-first little-endian bit stream per row), IEEE 754, bfloat16.
void decode_row(const QMatrixView& matrix, std::uint64_t row, std::span<float> out);

// Whether decode_row knows `format`: its id, and of affine codes the group and the type of scales.
bool can_decode(const WeightFormat& format);

// Code `index` of a row of `bits`-wide codes packed as a little-endian bit stream. Reads only bytes
// that hold bits of the code.
std::uint32_t unpack_code(const std::byte* row, std::uint64_t index, std::uint32_t bits);
// Stores a code (below 2^bits) into a zeroed row.
void pack_code(std::byte* row, std::uint64_t index, std::uint32_t bits, std::uint32_t code);

}  // namespace moepack
