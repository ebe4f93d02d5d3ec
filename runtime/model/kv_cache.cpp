#include "runtime/model/kv_cache.h"

#include "runtime/model/block_kv_cache.h"
#include "runtime/model/row_kv_cache.h"

namespace moepack {

KvFormat kv_format(const Kernels& kernels, KvEncoding encoding) {
  return {.encoding = encoding,
          .layout = kernels.attention == nullptr ? KvLayout::kRows : KvLayout::kBlocks};
}

std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) {
  return shape.format.layout == KvLayout::kRows ? make_row_kv_cache(shape)
                                                : make_block_kv_cache(shape);
}

std::uint64_t kv_cache_bytes(const KvShape& shape) {
  return shape.format.layout == KvLayout::kRows ? row_kv_cache_bytes(shape)
                                                : block_kv_cache_bytes(shape);
}

}  // namespace moepack
