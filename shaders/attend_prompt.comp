// Attention of many tokens of a slice: tiles of queries against blocks of keys, by online softmax
// (FlashAttention, arXiv 2205.14135). A tile has all queries that share a head of keys, token after
// token. Blocks lie at fixed positions and every sum has a fixed order, so that the bits of a row
// depend on its position alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/kv.glsl"
#include "shaders/attention_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint HAS_SINKS = 0;
layout(constant_id = 4) const uint WINDOW = 0;  // keys that a token sees; 0: all
layout(push_constant, scalar) uniform Push { AttendPromptArgs args; };

const uint kThreads = 256;
const uint kTile = 64;   // queries
const uint kBlock = 64;  // keys
const uint kDims = 16;   // of queries and keys that lie in shared memory at once
const uint kRows = HEAD_DIM > 256 ? 4 : 8;  // of values that do
const uint kVectors = (HEAD_DIM + 63) / 64;  // of four values of the result, per thread and query
const uint kHeadVectors = HEAD_DIM / 4;
const uint kThreadValues = (kRows * kHeadVectors + kThreads - 1) / kThreads;
const float kLeast = -3.0e38;
const uint kNone = 0xffffffffu;

// A query's values lie side by side with those of other queries; padded against bank conflicts.
const uint kStride = kTile / 4 + 1;
const uint kWeightStride = kTile / 4 + 2;
shared vec4 weights[kBlock * kWeightStride];  // [key, query]: scores, then weights
shared vec4 staged[2 * kDims * kStride];      // [dim, query], [dim, key]; or values, [key, dim]
shared float factors[kTile];                  // of what earlier blocks gave
shared float totals[kTile];

BatchSlice slice;
Words cache;
uint kv_head;
uint shared_by;    // query heads that share a head of keys
uint first_query;  // of the tile, in the slice
uint tile_row;     // of the four queries that this thread has results of
uint column;       // and its first vector of them
uint query_seen;   // keys that the query sees which this thread loads
uint query_at;     // and where it lies
vec4 acc[4 * kVectors];

// Keys that a query of the tile sees; 0 when there is no such query.
uint seen_by(uint query) {
  const uint token = (first_query + query) / shared_by;
  return token < slice.count ? slice.position + token + 1 : 0;
}

// Of keys before `seen`, the end of those that a query sees.
bool is_seen(uint key, uint seen) { return key < seen && (WINDOW == 0 || key + WINDOW >= seen); }

// Where the values of a query of the tile lie.
uint query_index(uint query) {
  const uint n = first_query + query;
  return (slice.first + n / shared_by) * args.q_stride +
         (kv_head * shared_by + n % shared_by) * args.q_step;
}

// What a thread puts into shared memory next: it is loaded before the sums that come first, so that
// these need not wait.
vec4 next_query;
vec4 next_key;
vec4 next_values[kThreadValues];

// Queries' and keys' dims from `d` on; a thread takes four of a query and of a key.
void fetch_dims(uint d, uint first_key, uint keys) {
  const uint i = thread_id() / 4;
  const uint at = d + thread_id() % 4 * 4;
  next_query = vec4(0.0);
  next_key = vec4(0.0);
  if (at < HEAD_DIM && query_seen != 0) {
    const uint index = query_at + at;
    next_query =
        vec4(args.q.v[index], args.q.v[index + 1], args.q.v[index + 2], args.q.v[index + 3]);
  }
  if (at < HEAD_DIM && first_key + i < keys) {
    next_key = kv_load4(cache, kv_index(first_key + i, 0, kv_head, args.kv_heads) + at);
  }
}

void stage_dims() {
  const uint i = thread_id() / 4;
  const uint part = thread_id() % 4;
  [[unroll]] for (uint c = 0; c < 4; ++c) {
    staged[(4 * part + c) * kStride + i / 4][i % 4] = next_query[c];
    staged[(kDims + 4 * part + c) * kStride + i / 4][i % 4] = next_key[c];
  }
}

// Scores of four queries and four keys, into shared memory; fetch_dims(0, …) came before.
void score(uint first_key, uint keys) {
  const uint key_column = thread_id() % 16;
  vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));  // [key][query]
  for (uint d = 0; d < HEAD_DIM; d += kDims) {
    stage_dims();
    barrier();
    if (d + kDims < HEAD_DIM) fetch_dims(d + kDims, first_key, keys);
    [[unroll]] for (uint i = 0; i < kDims; ++i) {
      const vec4 q = staged[i * kStride + tile_row];
      const vec4 k = staged[(kDims + i) * kStride + key_column];
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        precise vec4 sum = fma(q, vec4(k[j]), sums[j]);
        sums[j] = sum;
      }
    }
    barrier();
  }
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    weights[(4 * key_column + j) * kWeightStride + tile_row] = sums[j];
  }
}

// Scores to weights: four threads a query, each with every fourth key. `most` and `total` are of the
// query thread_id() / 4, the same in the four.
void weigh(uint first_key, inout float most, inout float total) {
  const uint query = thread_id() / 4;
  const uint part = thread_id() % 4;
  const uint seen = seen_by(query);
  float top = most;
  for (uint i = part; i < kBlock; i += 4) {
    if (is_seen(first_key + i, seen)) top = max(top, weights[i * kWeightStride + query / 4][query % 4]);
  }
  top = max(top, subgroupShuffleXor(top, 1));
  top = max(top, subgroupShuffleXor(top, 2));
  const float factor = exact_exp(most - top);
  float sum = 0.0;
  for (uint i = part; i < kBlock; i += 4) {
    const uint at = i * kWeightStride + query / 4;
    const float weight = is_seen(first_key + i, seen) ? exact_exp(weights[at][query % 4] - top) : 0.0;
    weights[at][query % 4] = weight;
    precise float next = sum + weight;
    sum = next;
  }
  precise float all = sum + subgroupShuffleXor(sum, 1);
  all = all + subgroupShuffleXor(all, 2);
  all = fma(total, factor, all);
  total = all;
  most = top;
  if (part == 0) factors[query] = factor;
}

void fetch_values(uint first_key, uint keys) {
  [[unroll]] for (uint n = 0; n < kThreadValues; ++n) {
    const uint i = thread_id() + n * kThreads;
    const uint key = first_key + i / kHeadVectors;
    next_values[n] = vec4(0.0);
    if (i < kRows * kHeadVectors && key < keys) {
      next_values[n] =
          kv_load4(cache, kv_index(key, 1, kv_head, args.kv_heads) + i % kHeadVectors * 4);
    }
  }
}

void stage_values() {
  [[unroll]] for (uint n = 0; n < kThreadValues; ++n) {
    const uint i = thread_id() + n * kThreads;
    if (i < kRows * kHeadVectors) staged[i] = next_values[n];
  }
}

// A query's result is changed by keys that it sees alone, whatever the others' values are.
void add_value(uint key, uint at, uint row, uvec4 seen, bool is_masked) {
  const vec4 weight = weights[at * kWeightStride + tile_row];
  [[unroll]] for (uint n = 0; n < kVectors; ++n) {
    const uint d = column + 16 * n;
    const vec4 v = d < kHeadVectors ? staged[row * kHeadVectors + d] : vec4(0.0);
    [[unroll]] for (uint i = 0; i < 4; ++i) {
      precise vec4 sum = fma(vec4(weight[i]), v, acc[i * kVectors + n]);
      if (!is_masked || is_seen(key, seen[i])) acc[i * kVectors + n] = sum;
    }
  }
}

// fetch_values(first_key, …) came before.
void add_values(uint first_key, uint keys, uvec4 seen) {
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const float factor = factors[4 * tile_row + i];
    [[unroll]] for (uint n = 0; n < kVectors; ++n) acc[i * kVectors + n] *= factor;
  }
  bool is_masked = first_key + kBlock > seen_by(0);
  if (WINDOW != 0) is_masked = is_masked || first_key + WINDOW < keys;
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
  const uint n = first_query + query;
  const uint head = kv_head * shared_by + n % shared_by;
  const uint at = ((slice.first + n / shared_by) * args.num_heads + head) * HEAD_DIM;
  const uint gate = query_index(query) + HEAD_DIM;
  [[unroll]] for (uint v = 0; v < kVectors; ++v) {
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      const uint d = 4 * (column + 16 * v) + c;
      if (d >= HEAD_DIM) continue;
      float y = acc[i * kVectors + v][c] / totals[query];
      if (args.has_gate != 0) y *= sigmoid(args.q.v[gate + d]);
      args.attended.v[at + d] = y;
    }
  }
}

void main() {
  slice = args.slices.v[gl_WorkGroupID.z];
  shared_by = args.num_heads / args.kv_heads;
  first_query = gl_WorkGroupID.x * kTile;
  if (slice.live == 0 || first_query >= slice.count * shared_by) return;
  kv_head = gl_WorkGroupID.y;
  cache = args.caches.v[gl_WorkGroupID.z];
  tile_row = thread_id() / 16;
  column = thread_id() % 16;
  query_seen = seen_by(thread_id() / 4);
  query_at = query_index(thread_id() / 4);
  [[unroll]] for (uint i = 0; i < 4 * kVectors; ++i) acc[i] = vec4(0.0);
  uvec4 seen;
  [[unroll]] for (uint i = 0; i < 4; ++i) seen[i] = seen_by(4 * tile_row + i);
  // Keys that some query of the tile sees.
  const uint last = min(first_query + kTile, slice.count * shared_by) - 1;
  const uint keys = slice.position + last / shared_by + 1;
  float most = kLeast;
  float total = 0.0;
  if (HAS_SINKS != 0) {
    most = args.sinks.v[kv_head * shared_by + (first_query + thread_id() / 4) % shared_by];
    total = 1.0;
  }
  const uint first_seen = seen_by(0);
  const uint begin = WINDOW != 0 ? (first_seen - min(first_seen, WINDOW)) / kBlock * kBlock : 0;
  fetch_dims(0, begin, keys);
  for (uint key = begin; key < keys; key += kBlock) {
    score(key, keys);
    fetch_values(key, keys);
    barrier();
    weigh(key, most, total);
    barrier();
    add_values(key, keys, seen);
  }
  if (thread_id() % 4 == 0) totals[thread_id() / 4] = total;
  barrier();
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (seen[i] != 0) write(4 * tile_row + i, i);
  }
}
