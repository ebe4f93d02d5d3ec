// Keys and values in an encoding of their own, laid out for the attention kernels: for every
// kKvBlock positions one piece of memory, in it head after head, of each head the keys, then the
// values, then the scales of both, each contiguous (attention_kernels.h).
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/model/kv_cache.h"

namespace moepack {

// shape.format is in blocks.
std::unique_ptr<KvCache> make_block_kv_cache(const KvShape& shape);
// Memory of such a cache whose context is full; at most kTooManyBytes.
std::uint64_t block_kv_cache_bytes(const KvShape& shape);

}  // namespace moepack
