// Rounding to the affine formats.
#pragma once

#include <cstdint>
#include <span>

#include "formats/weights/qformat.h"

namespace moepack {

// Where one encoded row goes. The spans have the sizes that matrix_bytes(format, 1, cols) states.
struct AffineRowOut {
  std::span<std::byte> codes;
  std::span<std::byte> scales;
  std::span<std::byte> biases;
};

// Rounds one row to `format` (affine) by MLX's rule, byte for byte what `mlx.core.quantize` writes:
// per group, the extreme of larger magnitude is represented exactly, so the scale may be negative;
// codes are chosen in float32 with the unrounded scale and bias (ties to even), which are then
// stored in format.scale_type. row.size() is a multiple of the group size.
// Source: MLX's affine quantizer (the checkpoint format of mlx-lm). Pure; any number of threads.
void encode_affine_row(const WeightFormat& format, std::span<const float> row,
                       const AffineRowOut& out);

}  // namespace moepack
