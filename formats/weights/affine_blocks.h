// Affine codes in ggml's blocks, value for value: Q4_1 and Q5_1 hold a scale and a minimum for 32
// consecutive inputs, which is what a group of 32, 64 or 128 affine codes has once, twice or four
// times over.
//
// A block's scale and minimum are float16. A bfloat16 of 2^-17 or more in magnitude (and below
// 2^16) is one; smaller ones only if their last bits are zero.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "formats/weights/qformat.h"

namespace moepack {

// The block format with room for the codes of `format`: Q4_1 up to 4 bits, Q5_1 for 5. nullopt:
// not affine, or more bits than any block with a minimum has.
std::optional<QFormatId> affine_block_format(const WeightFormat& format);

// A group whose values no block holds.
struct InexactGroup {
  std::uint64_t group = 0;  // of the row
  bool is_scale = false;    // else the bias
  float value = 0;
};

// Whether row `row` can be stored exactly. `matrix` is affine; it may come without its codes
// (weight nullptr): then a scale that is no float16 counts as inexact even where all codes of its
// group are 0, so that it does not matter.
std::optional<InexactGroup> find_inexact_group(const QMatrixView& matrix, std::uint64_t row);

// Writes row `row` of `matrix` as blocks of `target` (Q4_1 or Q5_1, wide enough for the codes):
// out.size() bytes, matrix_bytes({target}, 1, cols) of them. Every value that decode_row gives of
// the blocks is bit for bit that of the affine row, but for the sign of a zero. Else the first
// group that it is not so for; `out` is then undefined. Pure; any number of threads.
std::optional<InexactGroup> encode_affine_blocks(const QMatrixView& matrix, std::uint64_t row,
                                                 QFormatId target, std::span<std::byte> out);

}  // namespace moepack
