// Attention of latent queries: tiles of queries, those of all heads of a token and of the tokens that
// follow, against blocks of compressed rows, by online softmax (FlashAttention, arXiv 2205.14135).
// All heads share the rows, whose first RANK values are the values too. Blocks lie at fixed positions
// and every sum has a fixed order, so that the bits of a row depend on its position alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/kv.glsl"
#include "shaders/latent_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint RANK = 64;
layout(constant_id = 4) const uint IS_SPLIT = 0;
layout(push_constant, scalar) uniform Push { LatentAttendArgs args; };

const uint kThreads = 256;
const uint kTile = MOE_LATENT_TILE;    // queries
const uint kBlock = MOE_LATENT_BLOCK;  // keys
const uint kDims = 32;                 // of queries and keys that lie in shared memory at once
const uint kRankVectors = RANK / 4;
const uint kRows = kRankVectors >= 512 ? 1 : 512 / kRankVectors > kBlock ? kBlock
                   : 512 / kRankVectors >= 16 ? 16 : 512 / kRankVectors >= 8 ? 8
                   : 512 / kRankVectors >= 4 ? 4 : 512 / kRankVectors >= 2 ? 2 : 1;  // of values
const uint kVectors = (kRankVectors + 31) / 32;  // of four values of the result, per thread and query
const uint kThreadValues = (kRows * kRankVectors + kThreads - 1) / kThreads;
const float kLeast = -3.0e38;

// A query's values lie side by side with those of other queries; padded against bank conflicts.
const uint kStride = kTile / 4 + 1;
const uint kStaged =
    2 * kDims * kStride > kRows * kRankVectors ? 2 * kDims * kStride : kRows * kRankVectors;
shared vec4 weights[kBlock * kStride];  // [key, query]: scores, then weights
shared vec4 staged[kStaged];            // [dim, query], [dim, key]; or values, [key, dim]
shared float factors[kTile];            // of what earlier blocks gave
shared float totals[kTile];
shared float tops[kTile];

BatchSlice slice;
Words cache;
uint first_query;  // of the tile, in the slice
uint tile_row;     // of the four queries that this thread has results of
uint column;       // and its first vector of them
uint query_seen;   // keys that the query sees which this thread loads
uint query_at;     // and where it lies
vec4 acc[4 * kVectors];

// Keys that a query of the tile sees; 0 when there is no such query.
uint seen_by(uint query) {
  const uint token = (first_query + query) / args.num_heads;
  return token < slice.count ? slice.position + token + 1 : 0;
}

// The number of a query of the tile among all of the batch.
uint query_number(uint query) { return slice.first * args.num_heads + first_query + query; }

// What a thread puts into shared memory next: it is loaded before the sums that come first, so that
// these need not wait.
vec4 next_query;
vec4 next_key;
vec4 next_values[kThreadValues];

vec4 load_key4(uint key, uint d) { return kv_load4(cache, key * HEAD_DIM + d); }

// Queries' and keys' dims from `d` on; a thread takes four of a query and of a key.
void fetch_dims(uint d, uint first_key, uint keys) {
  const uint i = thread_id() / 8;
  const uint at = d + thread_id() % 8 * 4;
  next_query = vec4(0.0);
  next_key = vec4(0.0);
  if (at < HEAD_DIM && query_seen != 0) {
    next_query = F32x4(uint64_t(args.latent)).v[(query_at + at) / 4];
  }
  if (at < HEAD_DIM && first_key + i < keys) next_key = load_key4(first_key + i, at);
}

void stage_dims() {
  const uint i = thread_id() / 8;
  const uint part = thread_id() % 8;
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    staged[(4 * part + c) * kStride + i / 4][i % 4] = next_query[c];
    staged[(kDims + 4 * part + c) * kStride + i / 4][i % 4] = next_key[c];
  }
}

// Scores of four queries and one key, into shared memory; fetch_dims(0, …) came before.
void score(uint first_key, uint keys) {
  const uint key = thread_id() % kBlock;
  vec4 sum = vec4(0.0);
  for (uint d = 0; d < HEAD_DIM; d += kDims) {
    stage_dims();
    barrier();
    if (d + kDims < HEAD_DIM) fetch_dims(d + kDims, first_key, keys);
    [[unroll]] for (uint i = 0; i < kDims; ++i) {
      const vec4 q = staged[i * kStride + tile_row];
      const float k = staged[(kDims + i) * kStride + key / 4][key % 4];
      precise vec4 next = fma(q, vec4(k), sum);
      sum = next;
    }
    barrier();
  }
  weights[key * kStride + tile_row] = sum;
}

float lanes8_top(float x) {
  x = max(x, subgroupShuffleXor(x, 1));
  x = max(x, subgroupShuffleXor(x, 2));
  return max(x, subgroupShuffleXor(x, 4));
}

// Scores to weights: eight threads a query, each with every eighth key. `most` and `total` are of the
// query thread_id() / 8, the same in the eight.
void weigh(uint first_key, uint keys, inout float most, inout float total) {
  const uint query = thread_id() / 8;
  const uint part = thread_id() % 8;
  const uint seen = min(seen_by(query), keys);
  float top = most;
  for (uint i = part; i < kBlock; i += 8) {
    if (first_key + i < seen) top = max(top, weights[i * kStride + query / 4][query % 4]);
  }
  top = lanes8_top(top);
  const float factor = exact_exp(most - top);
  float sum = 0.0;
  for (uint i = part; i < kBlock; i += 8) {
    const uint at = i * kStride + query / 4;
    const float weight = first_key + i < seen ? exact_exp(weights[at][query % 4] - top) : 0.0;
    weights[at][query % 4] = weight;
    precise float next = sum + weight;
    sum = next;
  }
  total = fma(total, factor, lanes8_sum(sum));
  most = top;
  if (part == 0) factors[query] = factor;
}

void fetch_values(uint first_key, uint keys) {
  [[unroll]] for (uint n = 0; n < kThreadValues; ++n) {
    const uint i = thread_id() + n * kThreads;
    const uint key = first_key + i / kRankVectors;
    next_values[n] = vec4(0.0);
    if (i < kRows * kRankVectors && key < keys) {
      next_values[n] = load_key4(key, i % kRankVectors * 4);
    }
  }
}

void stage_values() {
  [[unroll]] for (uint n = 0; n < kThreadValues; ++n) {
    const uint i = thread_id() + n * kThreads;
    if (i < kRows * kRankVectors) staged[i] = next_values[n];
  }
}

// A query's result is changed by keys that it sees alone, whatever the others' values are.
void add_value(uint key, uint at, uint row, uvec4 seen, bool is_masked) {
  const vec4 weight = weights[at * kStride + tile_row];
  [[unroll]] for (uint n = 0; n < kVectors; ++n) {
    const uint d = column + 32 * n;
    const vec4 v = d < kRankVectors ? staged[row * kRankVectors + d] : vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      precise vec4 sum = fma(vec4(weight[i]), v, acc[i * kVectors + n]);
      if (!is_masked || key < seen[i]) acc[i * kVectors + n] = sum;
    }
  }
}

// fetch_values(first_key, …) came before.
void add_values(uint first_key, uint keys, uvec4 seen) {
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const float factor = factors[4 * tile_row + i];
    [[unroll]] for (uint n = 0; n < kVectors; ++n) acc[i * kVectors + n] *= factor;
  }
  const bool is_masked = first_key + kBlock > seen_by(0);
  for (uint first = 0; first < kBlock; first += kRows) {
    stage_values();
    barrier();
    if (first + kRows < kBlock) {
      fetch_values(first_key + first + kRows, keys);
    } else {
      fetch_dims(0, first_key + kBlock, keys);
    }
    if (is_masked) {
      for (uint r = 0; r < kRows; ++r) {
        add_value(first_key + first + r, first + r, r, seen, true);
      }
    } else {
      [[unroll]] for (uint r = 0; r < kRows; ++r) {
        add_value(first_key + first + r, first + r, r, seen, false);
      }
    }
    barrier();
  }
}

void write(uint query, uint i) {
  const uint n = query_number(query);
  uint64_t to = uint64_t(args.latent) + uint64_t(n) * (HEAD_DIM * 4);
  float divisor = totals[query];
  if (IS_SPLIT != 0) {
    const uint at = n * gl_NumWorkGroups.y + gl_WorkGroupID.y;
    to = uint64_t(args.values) + uint64_t(at) * (RANK * 4);
    divisor = 1.0;
    if (column == 0) {
      args.stats.v[2 * at] = tops[query];
      args.stats.v[2 * at + 1] = totals[query];
    }
  }
  [[unroll]] for (uint v = 0; v < kVectors; ++v) {
    const uint d = column + 32 * v;
    if (d < kRankVectors) F32x4(to).v[d] = acc[i * kVectors + v] / divisor;
  }
}

// The rows of this work group; of a split each row is a slice by itself.
uint find_slice() {
  if (IS_SPLIT == 0) {
    slice = args.slices.v[gl_WorkGroupID.z];
    return gl_WorkGroupID.z;
  }
  const BatchRow place = args.rows.v[gl_WorkGroupID.z];
  slice = BatchSlice(gl_WorkGroupID.z, 1, place.position, place.live);
  return place.slice;
}

void main() {
  const uint number = find_slice();
  first_query = gl_WorkGroupID.x * kTile;
  const uint queries = slice.count * args.num_heads;
  if (slice.live == 0 || first_query >= queries) return;
  // Keys that some query of the tile sees.
  const uint last = min(first_query + kTile, queries) - 1;
  uint keys = slice.position + last / args.num_heads + 1;
  uint begin = 0;
  if (IS_SPLIT != 0) {
    const uint blocks = (keys + kBlock - 1) / kBlock;
    const uint share = (blocks + gl_NumWorkGroups.y - 1) / gl_NumWorkGroups.y * kBlock;
    begin = gl_WorkGroupID.y * share;
    if (begin >= keys) return;
    keys = min(keys, begin + share);
  }
  cache = args.caches.v[number];
  tile_row = thread_id() / 32;
  column = thread_id() % 32;
  query_seen = seen_by(thread_id() / 8);
  query_at = query_number(thread_id() / 8) * HEAD_DIM;
  [[unroll]] for (uint i = 0; i < 4 * kVectors; ++i) acc[i] = vec4(0.0);
  uvec4 seen;
  [[unroll]] for (uint i = 0; i < 4; ++i) seen[i] = min(seen_by(4 * tile_row + i), keys);
  float most = kLeast;
  float total = 0.0;
  fetch_dims(0, begin, keys);
  for (uint key = begin; key < keys; key += kBlock) {
    score(key, keys);
    fetch_values(key, keys);
    barrier();
    weigh(key, keys, most, total);
    barrier();
    add_values(key, keys, seen);
  }
  if (thread_id() % 8 == 0) {
    totals[thread_id() / 8] = total;
    tops[thread_id() / 8] = most;
  }
  barrier();
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (seen[i] != 0) write(4 * tile_row + i, i);
  }
}
