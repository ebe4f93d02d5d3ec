// How the rows of a matrix lie in device memory: row after row, and in a row of blocks first one
// part of all blocks, then the next (codes, then signs, then scales). Blocks of 18 or 98 bytes
// would be read a word at a time from addresses far apart; of parts lanes with consecutive blocks
// read consecutive vectors. A row has the bytes it has elsewhere. The device's side is
// shaders/row_parts.glsl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/weights/qformat.h"

namespace moepack {

// Of a block as files hold it.
struct BlockPart {
  std::uint32_t offset;  // bytes
  std::uint32_t bytes;
};

// The parts in the order in which a row holds them; together they are the block. Empty where rows
// lie on the device as they do elsewhere.
std::span<const BlockPart> block_parts(QFormatId format);

// Whether bytes move on the way to the device: rows have parts, or are in panels (row_order.h).
bool differs_on_device(const WeightFormat& format);

// Rows of `row_bytes` that are brought to the device as a piece of about `bytes`, but for the last
// of a matrix: at least one, in panels whole ones.
std::uint64_t rows_of_piece(const WeightFormat& format, std::uint64_t row_bytes,
                            std::uint64_t bytes);

// Brings `rows` rows of a component, of `row_bytes` each, into the device's order. `in` and `out`
// do not overlap. In panels they are a piece of those above.
void to_device_rows(const WeightFormat& format, Component component, std::uint64_t rows,
                    std::uint64_t row_bytes, const std::byte* in, std::byte* out);

}  // namespace moepack
