// Keys and values as float32 rows, position after position: what the reference backend reads.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/model/kv_cache.h"

namespace moepack {

// shape.format is float32 in rows.
std::unique_ptr<KvCache> make_row_kv_cache(const KvShape& shape);
// Memory of such a cache whose context is full; at most kTooManyBytes.
std::uint64_t row_kv_cache_bytes(const KvShape& shape);

}  // namespace moepack
