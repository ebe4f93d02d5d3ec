// Whether stored weights stand for numbers, without decoding them.
#pragma once

#include <cstddef>
#include <span>

#include "formats/base/dtype.h"
#include "formats/weights/qformat.h"

namespace moepack {

// Of whole values in little-endian form, at any alignment. `dtype`: F32, F16 or BF16.
bool floats_are_finite(DType dtype, std::span<const std::byte> values);

// Of whole blocks of ggml: true exactly when every weight that the decoder makes of them is finite.
bool blocks_are_finite(QFormatId id, std::span<const std::byte> blocks);

// Of the weight component of a matrix in `format`. The codes of affine formats always are; their
// scales and biases are floats of format.scale_type.
bool weights_are_finite(const WeightFormat& format, std::span<const std::byte> weight);

}  // namespace moepack
