// The shape of attention over blocks (block_attention.h), how it cuts its work, and the memory that
// it takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/config/model_config.h"
#include "runtime/model/layer_slice.h"

namespace moepack {

// What a layer attends with. Of full attention all heads have their own values; in latent attention
// one compressed row is key and value of all.
struct AttentionShape {
  std::size_t heads = 0;  // of queries
  std::size_t kv_heads = 1;
  std::size_t key_dim = 0;      // floats of a query and a key
  std::size_t value_dim = 0;    // of a value
  bool values_in_keys = false;  // a value is the beginning of its key (kv_cache.h)

  std::size_t group() const { return kv_heads == 0 ? 1 : heads / kv_heads; }
};
AttentionShape full_attention_shape(const HeadSizes& heads);
// With kv_rank + rotary_dim floats a key and kv_rank a value.
AttentionShape latent_attention_shape(const ModelConfig& config);

// Queries that meet a block together, while it is in the cache.
constexpr std::size_t kTileQueries = 64;

// Consecutive tokens of a slice with the query heads of one K/V head: row i is head
// i % group of token i / group, group being the query heads of a K/V head.
struct AttentionTile {
  const LayerSlice* slice = nullptr;
  std::size_t row = 0;     // of the batch: its first token
  std::size_t tokens = 0;  // at least 1
  std::size_t kv_head = 0;
  std::size_t block = 0;   // the first that its first token sees
  std::size_t blocks = 0;  // from there to the last that its last token sees
  std::size_t task = 0;    // blocks of the tiles before it in its round
  std::size_t result = 0;  // its first result: [blocks, tokens * group]
};

// The memory of `results` results, then that of each thread, in floats.
struct AttentionWorkspace {
  std::uint64_t results = 0;     // number of results that can wait for being merged
  std::uint64_t result = 0;      // of one result
  std::uint64_t per_thread = 0;  // weights, the results of a call and of a tile, and `values`
  std::uint64_t values = 0;      // of a block, where they are in its keys

  std::uint64_t floats(std::uint64_t threads) const;  // at most kTooManyBytes
};
AttentionWorkspace attention_workspace(const AttentionShape& shape, std::uint64_t context);

}  // namespace moepack
