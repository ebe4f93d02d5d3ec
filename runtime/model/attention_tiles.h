// How attention over blocks (block_attention.h) cuts its work, and the memory that it takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/config/model_config.h"
#include "runtime/model/layer_slice.h"

namespace moepack {

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
  std::uint64_t per_thread = 0;  // weights, the results of a call and of a tile

  std::uint64_t floats(std::uint64_t threads) const;  // at most kTooManyBytes
};
AttentionWorkspace attention_workspace(const ModelConfig& config, std::uint64_t context);

}  // namespace moepack
