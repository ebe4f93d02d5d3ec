#include "runtime/model/block_attention.h"

#include <algorithm>
#include <array>

#include "formats/base/bytes.h"
#include "runtime/model/block_kv_cache.h"
#include "runtime/model/byte_counts.h"
#include "runtime/model/kv_cache.h"

namespace moepack {
namespace {

std::size_t tokens_per_tile(std::size_t group) {
  return std::max<std::size_t>(1, kTileQueries / group);
}

}  // namespace

std::uint64_t AttentionWorkspace::floats(std::uint64_t threads) const {
  return capped_sum(capped_product(results, result), capped_product(threads, per_thread));
}

AttentionShape full_attention_shape(const HeadSizes& heads) {
  return {.heads = heads.heads,
          .kv_heads = heads.kv_heads,
          .key_dim = heads.head_dim,
          .value_dim = heads.head_dim};
}

AttentionShape latent_attention_shape(const ModelConfig& config) {
  return {.heads = config.num_heads,
          .kv_heads = 1,
          .key_dim = std::size_t{config.kv_rank} + config.rotary_dim,
          .value_dim = config.kv_rank,
          .values_in_keys = true};
}

AttentionWorkspace attention_workspace(const AttentionShape& shape, std::uint64_t context) {
  const std::size_t group = shape.group();
  AttentionWorkspace space;
  space.result = attention_result_floats(shape.value_dim);
  // Of all heads of one token.
  space.results = capped_product(div_up(context, kKvBlock), shape.heads);
  if (shape.values_in_keys) space.values = kKvBlock * align_up(shape.value_dim, kKvGroup);
  const std::uint64_t rows = tokens_per_tile(group) * group + kAttentionRows;
  space.per_thread = capped_sum(capped_product(rows, space.result), kAttentionRows * kKvBlock);
  space.per_thread = capped_sum(space.per_thread, space.values);
  return space;
}

BlockAttention::BlockAttention(const AttentionShape& shape, Activations& scratch)
    : shape_(shape),
      scratch_(scratch),
      group_(shape.group()),
      space_(attention_workspace(shape, scratch.context())) {}

std::size_t BlockAttention::index_of(const AttentionTile& tile, std::size_t row) const {
  const std::size_t token = tile.row + row / group_;
  return token * shape_.heads + head_of(tile, row);
}

const float* BlockAttention::query_of(const AttentionTile& tile, std::size_t row) const {
  return rows_.queries + index_of(tile, row) * rows_.query_stride;
}

std::size_t BlockAttention::first_block(const AttentionTile& tile, std::size_t row) const {
  return first_seen(position_of(tile, row)) / kKvBlock;
}

// Keys of `block` up to the last that a row sees; none where it sees none.
std::size_t BlockAttention::seen_of(const AttentionTile& tile, std::size_t row,
                                    std::size_t block) const {
  const std::uint64_t seen = position_of(tile, row) + 1;
  const std::uint64_t before = std::uint64_t{block} * kKvBlock;
  if (seen <= before || block < first_block(tile, row)) return 0;
  return std::min<std::uint64_t>(seen - before, kKvBlock);
}

// Of these, those that lie before its window.
std::size_t BlockAttention::hidden_of(const AttentionTile& tile, std::size_t row,
                                      std::size_t block) const {
  const std::uint64_t first = first_seen(position_of(tile, row));
  const std::uint64_t before = std::uint64_t{block} * kKvBlock;
  return first <= before ? 0 : first - before;
}

// Result `index` of those that wait for being merged.
float* BlockAttention::waiting(std::size_t index) const {
  return scratch_.scores.data() + index * space_.result;
}

float* BlockAttention::thread_memory(std::size_t worker) const {
  return waiting(space_.results) + worker * space_.per_thread;
}

// Cuts the live slices into tiles of at most `most_tokens` tokens; gives their number.
std::size_t BlockAttention::make_tiles(std::span<const LayerSlice> slices,
                                       std::size_t most_tokens) {
  std::size_t count = 0;
  for (const LayerSlice& slice : slices) {
    if (!slice.is_live()) continue;
    for (std::size_t done = 0; done < slice.count; done += most_tokens) {
      const std::size_t tokens = std::min(most_tokens, slice.count - done);
      for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
        AttentionTile& tile = scratch_.attention_tiles[count++];
        tile = {};
        tile.slice = &slice;
        tile.row = slice.first + done;
        tile.tokens = tokens;
        tile.kv_head = head;
        const std::uint64_t position = slice.position + done;
        tile.block = first_seen(position) / kKvBlock;
        tile.blocks = (position + tokens - 1) / kKvBlock - tile.block + 1;
      }
    }
  }
  return count;
}

// Most tokens of a tile such that the results of all its blocks find room. A single token's do.
std::size_t BlockAttention::shared_tile_tokens(std::span<const LayerSlice> slices) const {
  std::size_t blocks = 1;
  for (const LayerSlice& slice : slices) {
    if (slice.is_live() && slice.count > 0) {
      blocks = std::max<std::size_t>(blocks, (slice.position + slice.count - 1) / kKvBlock + 1);
    }
  }
  return std::clamp<std::size_t>(space_.results / (blocks * group_), 1, tokens_per_tile(group_));
}

KvBlock BlockAttention::block_of(const AttentionTile& tile, std::size_t block,
                                 std::size_t worker) const {
  KvBlock kv = tile.slice->state->kv->blocks()->block(tile.kv_head, block);
  if (!shape_.values_in_keys) return kv;
  float* const memory = thread_memory(worker) + space_.per_thread - space_.values;
  auto* const values = reinterpret_cast<std::byte*>(memory);
  const std::uint64_t before = std::uint64_t{block} * kKvBlock;
  const std::uint64_t stored = position_of(tile, rows_of(tile) - 1) + 1 - before;
  copy_values(kv, shape_.key_dim, shape_.value_dim, std::min<std::uint64_t>(stored, kKvBlock),
              values);
  kv.values = values;
  return kv;
}

void BlockAttention::attend_rows(const AttentionTile& tile, const KvBlock& kv, std::size_t block,
                                 std::size_t first, std::size_t count, float* weights,
                                 float* results) const {
  std::array<const float*, kAttentionRows> queries{};
  std::array<std::uint32_t, kAttentionRows> seen{};
  std::array<std::uint32_t, kAttentionRows> hidden{};
  for (std::size_t r = 0; r < kAttentionRows; ++r) {
    queries[r] = query_of(tile, first + std::min(r, count - 1));
    if (r >= count) continue;
    seen[r] = static_cast<std::uint32_t>(seen_of(tile, first + r, block));
    if (seen[r] == 0) continue;
    hidden[r] = static_cast<std::uint32_t>(hidden_of(tile, first + r, block));
  }
  AttentionCall call;
  call.block = kv;
  call.head_dim = shape_.key_dim;
  call.value_dim = shape_.value_dim;
  call.rows = count;
  call.queries = queries.data();
  call.seen = seen.data();
  call.hidden = hidden.data();
  call.results = results;
  call.weights = weights;
  kernels_->attend(call);
}

void BlockAttention::finish(const AttentionTile& tile, std::size_t row, float* spare,
                            float* result) const {
  if (!rows_.sinks.empty()) {
    // A block of one key with that score, whose value is zero.
    std::fill_n(spare, space_.result, 0.0F);
    spare[0] = rows_.sinks[head_of(tile, row)];
    spare[1] = 1;
    kernels_->merge(spare, shape_.value_dim, result);
  }
  const float* gate = rows_.has_gate ? query_of(tile, row) + shape_.key_dim : nullptr;
  kernels_->finish(result, gate, shape_.value_dim,
                   rows_.out + index_of(tile, row) * rows_.out_stride);
}

// All blocks of a tile, one after the other.
void BlockAttention::attend_tile(const AttentionTile& tile, std::size_t worker) const {
  const std::size_t rows = rows_of(tile);
  float* const weights = thread_memory(worker);
  float* const next = weights + kAttentionRows * kKvBlock;
  float* const merged = next + kAttentionRows * space_.result;
  for (std::size_t block = tile.block; block < tile.block + tile.blocks; ++block) {
    const KvBlock kv = block_of(tile, block, worker);
    for (std::size_t first = 0; first < rows; first += kAttentionRows) {
      const std::size_t count = std::min(kAttentionRows, rows - first);
      float* const to = merged + first * space_.result;
      attend_rows(tile, kv, block, first, count, weights, block == tile.block ? to : next);
      for (std::size_t r = 0; block > tile.block && r < count; ++r) {
        if (seen_of(tile, first + r, block) == 0) continue;
        const float* const from = next + r * space_.result;
        float* const sum = to + r * space_.result;
        if (block == first_block(tile, first + r)) {
          std::copy_n(from, space_.result, sum);
        } else {
          kernels_->merge(from, shape_.value_dim, sum);
        }
      }
    }
  }
  for (std::size_t row = 0; row < rows; ++row) {
    finish(tile, row, next, merged + row * space_.result);
  }
}

// Gives the first tiles their places, as many as find room together; at least one does.
std::size_t BlockAttention::plan_round(std::span<AttentionTile> tiles) const {
  std::size_t task = 0;
  std::size_t result = 0;
  std::size_t count = 0;
  for (; count < tiles.size(); ++count) {
    AttentionTile& tile = tiles[count];
    const std::size_t needed = tile.blocks * rows_of(tile);
    if (result + needed > space_.results) break;
    tile.task = task;
    tile.result = result;
    task += tile.blocks;
    result += needed;
  }
  return count;
}

// Merges the results of a tile's blocks into those of the first that a row sees.
void BlockAttention::merge_tile(const AttentionTile& tile, std::size_t worker) const {
  const std::size_t rows = rows_of(tile);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t first = first_block(tile, row) - tile.block;
    float* const merged = waiting(tile.result + first * rows + row);
    for (std::size_t block = first + 1; block < tile.blocks; ++block) {
      if (seen_of(tile, row, tile.block + block) == 0) continue;
      kernels_->merge(waiting(tile.result + block * rows + row), shape_.value_dim, merged);
    }
    finish(tile, row, thread_memory(worker), merged);
  }
}

// Every block of every tile is a task; then every tile is.
void BlockAttention::run_round(Compute& compute, std::span<const AttentionTile> tiles) const {
  const std::size_t tasks = tiles.back().task + tiles.back().blocks;
  const auto attend_task = [&](std::size_t task, std::size_t worker) {
    const auto after = std::upper_bound(
        tiles.begin(), tiles.end(), task,
        [](std::size_t wanted, const AttentionTile& tile) { return wanted < tile.task; });
    const AttentionTile& tile = *(after - 1);
    const std::size_t block = task - tile.task;
    const std::size_t rows = rows_of(tile);
    const KvBlock kv = block_of(tile, tile.block + block, worker);
    for (std::size_t first = 0; first < rows; first += kAttentionRows) {
      attend_rows(tile, kv, tile.block + block, first, std::min(kAttentionRows, rows - first),
                  thread_memory(worker), waiting(tile.result + block * rows + first));
    }
  };
  compute.pool().parallel_for(tasks, 1, [&](std::size_t begin, std::size_t end, std::size_t w) {
    for (std::size_t task = begin; task < end; ++task) attend_task(task, w);
  });
  compute.pool().parallel_for(tiles.size(), 1,
                              [&](std::size_t begin, std::size_t end, std::size_t w) {
                                for (std::size_t i = begin; i < end; ++i) merge_tile(tiles[i], w);
                              });
}

void BlockAttention::attend(Compute& compute, std::span<const LayerSlice> slices,
                            const Rows& rows) {
  kernels_ = compute.kernels().attention;
  rows_ = rows;
  const std::size_t threads = compute.pool().size();
  const std::size_t count = make_tiles(slices, tokens_per_tile(group_));
  const std::span<AttentionTile> tiles = scratch_.attention_tiles.first(count);
  const bool is_deep = std::any_of(tiles.begin(), tiles.end(),
                                   [](const AttentionTile& tile) { return tile.blocks > 1; });
  // With fewer tiles than threads, the blocks of the tiles are shared out.
  if (!is_deep || count >= threads) {
    compute.pool().parallel_for(count, 1,
                                [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                  for (std::size_t i = begin; i < end; ++i) {
                                    attend_tile(tiles[i], worker);
                                  }
                                });
    return;
  }
  std::span<AttentionTile> rest =
      scratch_.attention_tiles.first(make_tiles(slices, shared_tile_tokens(slices)));
  while (!rest.empty()) {
    const std::size_t taken = plan_round(rest);
    run_round(compute, rest.first(taken));
    rest = rest.subspan(taken);
  }
}

}  // namespace moepack
