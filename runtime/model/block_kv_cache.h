// Keys and values in an encoding of their own, laid out for the attention kernels: for every
// kKvBlock positions one piece of memory, in it head after head, of each head the keys, then the
// values, then the scales of both, each contiguous (attention_kernels.h). Values that are in the
// keys, and their scales, are not there.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/model/kv_cache.h"

namespace moepack {

// shape.format is in blocks.
std::unique_ptr<KvCache> make_block_kv_cache(const KvShape& shape);
// Memory of such a cache whose context is full; at most kTooManyBytes.
std::uint64_t block_kv_cache_bytes(const KvShape& shape);

// The values of a block that has them in its keys (KvShape::value_in_key), as the attention kernels
// take them: of the first `seen` positions, in whole groups. to: bytes of
// block.positions * align_up(value_dim, kKvGroup) values; dimensions behind value_dim become 0.
void copy_values(const KvBlock& block, std::size_t key_dim, std::size_t value_dim, std::size_t seen,
                 std::byte* to);

}  // namespace moepack
