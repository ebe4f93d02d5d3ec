// ggml's block formats (MIT licence there; formats and tables are facts, the code is our own): what
// the bytes of a block mean. Every value equals that of ggml's dequantize_row_* bit for bit. Our
// own blocks (formats/weights/float_blocks.h) are found here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/weights/qformat.h"

namespace moepack {

// Writes one block of info.block_values weights from info.block_bytes bytes at any alignment.
using GgmlBlockDecoder = void (*)(const std::byte* block, float* out);
// nullptr: not a block format.
GgmlBlockDecoder block_decoder(QFormatId id);

// Columns [first, first + out.size()) of row `row`; both numbers are multiples of the block.
void decode_block_columns(const QMatrixView& matrix, std::uint64_t row, std::uint64_t first,
                          std::span<float> out);

}  // namespace moepack
