// Attention over blocks of positions at fixed places of the sequence (attention_kernels.h).
//
// Few tokens on many positions are shared out by blocks, whose results are merged in a second step;
// otherwise each thread takes tiles of tokens through all their blocks. Both do the same operations
// in the same order, so results depend on neither, nor on threads, slices or chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/limits.h"
#include "runtime/model/activations.h"
#include "runtime/model/attention_kernels.h"
#include "runtime/model/attention_tiles.h"
#include "runtime/model/compute.h"
#include "runtime/model/layer_slice.h"

namespace moepack {

// One thread at a time calls it; the work is shared among the threads of `compute`.
class BlockAttention {
 public:
  // Queries and results of a batch: of row t and head h they lie at (t * heads + h) * stride.
  struct Rows {
    const float* queries = nullptr;  // normed, rotated and multiplied by the scale of the softmax
    std::size_t query_stride = 0;
    float* out = nullptr;  // [value_dim]; may be where the query is
    std::size_t out_stride = 0;
    bool has_gate = false;  // behind the query stands a gate of as many values as the head has
    std::span<const float> sinks = {};  // [heads], or empty
    // Positions that a token sees, or more than there are.
    std::uint64_t window = kMaxSequenceTokens;
  };

  // `scratch` outlives the object. Its scores and attention_tiles are used.
  BlockAttention(const AttentionShape& shape, Activations& scratch);

  // rows.out = attention of the queries for the rows of live slices, whose keys and values have
  // been stored; times the sigmoid of their gates.
  void attend(Compute& compute, std::span<const LayerSlice> slices, const Rows& rows);

 private:
  std::size_t make_tiles(std::span<const LayerSlice> slices, std::size_t most_tokens);
  std::size_t shared_tile_tokens(std::span<const LayerSlice> slices) const;
  // Block `block` as the kernels take it; values that are in its keys go to the thread's memory.
  KvBlock block_of(const AttentionTile& tile, std::size_t block, std::size_t worker) const;
  // Rows [first, first + count) of a tile against one block: results [count], without those of rows
  // that do not see it.
  void attend_rows(const AttentionTile& tile, const KvBlock& kv, std::size_t block,
                   std::size_t first, std::size_t count, float* weights, float* results) const;
  void attend_tile(const AttentionTile& tile, std::size_t worker) const;
  std::size_t plan_round(std::span<AttentionTile> tiles) const;
  void run_round(Compute& compute, std::span<const AttentionTile> tiles) const;
  void merge_tile(const AttentionTile& tile, std::size_t worker) const;
  // `spare`: memory of a result.
  void finish(const AttentionTile& tile, std::size_t row, float* spare, float* result) const;

  std::size_t rows_of(const AttentionTile& tile) const { return tile.tokens * group_; }
  // Of query `row` of a tile among all of the batch's.
  std::size_t index_of(const AttentionTile& tile, std::size_t row) const;
  const float* query_of(const AttentionTile& tile, std::size_t row) const;
  std::size_t head_of(const AttentionTile& tile, std::size_t row) const {
    return tile.kv_head * group_ + row % group_;
  }
  std::uint64_t position_of(const AttentionTile& tile, std::size_t row) const {
    return tile.slice->position + tile.row - tile.slice->first + row / group_;
  }
  // The first position that the one at `position` sees.
  std::uint64_t first_seen(std::uint64_t position) const {
    return position < rows_.window ? 0 : position - rows_.window + 1;
  }
  std::size_t first_block(const AttentionTile& tile, std::size_t row) const;
  std::size_t seen_of(const AttentionTile& tile, std::size_t row, std::size_t block) const;
  std::size_t hidden_of(const AttentionTile& tile, std::size_t row, std::size_t block) const;
  float* waiting(std::size_t index) const;
  float* thread_memory(std::size_t worker) const;

  AttentionShape shape_;
  Activations& scratch_;
  std::size_t group_;  // query heads of a K/V head
  AttentionWorkspace space_;
  const AttentionKernels* kernels_ = nullptr;  // of the call
  Rows rows_;                                  // of the call
};

}  // namespace moepack
