// One token against some of the keys, by online softmax (FlashAttention, arXiv 2205.14135): several
// query heads that share keys and values. The last work group of these heads to be done merges what
// all of them found, and gates it. A program that is short: a token runs it once a layer, so that its
// instructions come from memory each time.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/kv.glsl"
#include "shaders/attention_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint LANES = 8;
layout(constant_id = 4) const uint QUERIES = 4;
layout(push_constant, scalar) uniform Push { AttendArgs args; };

// What work groups hand to the one that merges.
layout(buffer_reference, scalar, buffer_reference_align = 16) coherent buffer SharedF32x4 {
  vec4 v[];
};
layout(buffer_reference, scalar, buffer_reference_align = 8) coherent buffer SharedF32x2 {
  vec2 v[];
};

const uint kGroups = 8;  // of lanes
const uint kKeys = MOE_ATTEND_BLOCK / kGroups;
const uint kChunks = (HEAD_DIM / 8 + LANES - 1) / LANES;  // of 8 values, per lane
const uint kRaw = KV_ENCODING == 0 ? 2 : 1;               // loads of a chunk
// Values: a thread has two of a head for one query or two.
const uint kCouple = QUERIES == 1 ? 1 : 2;
const uint kThreads = kGroups * LANES;
const uint kUnits = (HEAD_DIM / 2 * (QUERIES / kCouple) + kThreads - 1) / kThreads;
const uint kAtOnce = 8;  // splits whose values are loaded together
// Below every score, and finite: a weight of exp(-infinity - least) is 0.
const float kLeast = -3.0e38;

shared vec4 queries[QUERIES * HEAD_DIM / 4];
shared uvec4 block_values[MOE_ATTEND_BLOCK * HEAD_DIM / 8 * kRaw];
shared float weights[MOE_ATTEND_BLOCK * QUERIES];  // scores, then weights
shared float tops[QUERIES];                        // largest scores
shared float sums[QUERIES];                        // of weights
shared float factors[QUERIES];                     // of what there is, from block to block
shared float split_factors[MOE_ATTEND_SPLITS * QUERIES];
shared uint arrived_before;

uint row;
uint kv_head;
uint first_head;
uint heads;
uint lane;
uint group;
Words cache;
vec2 acc[kUnits * kCouple];

void load_queries() {
  for (uint i = thread_id(); i < QUERIES * HEAD_DIM / 4; i += kThreads) {
    const uint j = min(i / (HEAD_DIM / 4), heads - 1);
    const uint at = row * args.q_stride + (first_head + j) * args.q_step;
    queries[i] = F32x4(args.q).v[at / 4 + i % (HEAD_DIM / 4)];
  }
}

uvec4 load_raw(uint key, uint is_value, uint chunk, uint part) {
  const uint at = kv_index(key, is_value, kv_head, args.kv_heads) + 8 * chunk;
  return Words4(cache).v[KV_ENCODING == 0 ? at / 4 + part : at / 8];
}

// The scores of the block's keys, and its values as they are, into shared memory.
void score_block(uint first, uint last) {
  vec4 k[kKeys * 2 * kChunks];
  uvec4 raw[kKeys * kChunks * kRaw];
  [[unroll]] for (uint i = 0; i < kKeys; ++i) {
    const uint key = min(first + i * kGroups + group, last);
    [[unroll]] for (uint n = 0; n < kChunks; ++n) {
      const uint chunk = lane + n * LANES;
      k[(i * kChunks + n) * 2] = vec4(0.0);
      k[(i * kChunks + n) * 2 + 1] = vec4(0.0);
      if (chunk >= HEAD_DIM / 8) continue;
      kv_load8(cache, kv_index(key, 0, kv_head, args.kv_heads) + 8 * chunk,
               k[(i * kChunks + n) * 2], k[(i * kChunks + n) * 2 + 1]);
      [[unroll]] for (uint part = 0; part < kRaw; ++part) {
        raw[(i * kChunks + n) * kRaw + part] = load_raw(key, 1, chunk, part);
      }
    }
  }
  [[dont_unroll]] for (uint j = 0; j < heads; ++j) {
    float scores[kKeys];
    [[unroll]] for (uint i = 0; i < kKeys; ++i) scores[i] = 0.0;
    [[unroll]] for (uint n = 0; n < kChunks; ++n) {
      const uint chunk = min(lane + n * LANES, HEAD_DIM / 8 - 1);
      const vec4 low = queries[j * (HEAD_DIM / 4) + 2 * chunk];
      const vec4 high = queries[j * (HEAD_DIM / 4) + 2 * chunk + 1];
      [[unroll]] for (uint i = 0; i < kKeys; ++i) {
        const vec4 a = k[(i * kChunks + n) * 2];
        const vec4 b = k[(i * kChunks + n) * 2 + 1];
        precise vec4 products = fma(high, b, low * a);
        precise float part = (products.x + products.y) + (products.z + products.w);
        scores[i] += part;
      }
    }
    [[unroll]] for (uint distance = 1; distance < LANES; distance *= 2) {
      [[unroll]] for (uint i = 0; i < kKeys; ++i) {
        scores[i] += subgroupShuffleXor(scores[i], distance);
      }
    }
    [[unroll]] for (uint i = 0; i < kKeys; ++i) {
      if (lane == 0) weights[(i * kGroups + group) * QUERIES + j] = scores[i];
    }
  }
  [[unroll]] for (uint i = 0; i < kKeys; ++i) {
    [[unroll]] for (uint n = 0; n < kChunks; ++n) {
      const uint chunk = lane + n * LANES;
      if (chunk >= HEAD_DIM / 8) continue;
      const uint at = ((i * kGroups + group) * (HEAD_DIM / 8) + chunk) * kRaw;
      [[unroll]] for (uint part = 0; part < kRaw; ++part) {
        block_values[at + part] = raw[(i * kChunks + n) * kRaw + part];
      }
    }
  }
}

float lanes8_top(float x) {
  float top = max(x, subgroupShuffleXor(x, 1));
  top = max(top, subgroupShuffleXor(top, 2));
  return max(top, subgroupShuffleXor(top, 4));
}

// The weights of the block's first `count` keys; eight lanes for each query.
void weigh_block(uint count) {
  const uint j = thread_id() / 8;
  if (j >= QUERIES) return;
  const uint i = thread_id() % 8;
  float x[kKeys];
  const float before = tops[j];
  float top = before;
  [[unroll]] for (uint n = 0; n < kKeys; ++n) {
    x[n] = weights[(i + 8 * n) * QUERIES + j];
    if (i + 8 * n < count) top = max(top, x[n]);
  }
  top = lanes8_top(top);
  float sum = 0.0;
  [[unroll]] for (uint n = 0; n < kKeys; ++n) {
    const float weight = i + 8 * n < count ? exact_exp(x[n] - top) : 0.0;
    weights[(i + 8 * n) * QUERIES + j] = weight;
    sum += weight;
  }
  sum = lanes8_sum(sum);
  const float factor = exact_exp(before - top);
  if (i != 0) return;
  factors[j] = factor;
  sums[j] = fma(sums[j], factor, sum);
  tops[j] = top;
}

vec2 block_value(uint key, uint pair) {
  const uint at = key * (HEAD_DIM / 8) * kRaw;
  if (KV_ENCODING == 0) {
    const uvec4 words = block_values[at + pair / 2];
    return uintBitsToFloat(pair % 2 == 0 ? words.xy : words.zw);
  }
  return kv_decode(block_values[at + pair / 4][pair % 4]);
}

void add_values() {
  [[unroll]] for (uint n = 0; n < kUnits; ++n) {
    const uint unit = thread_id() + n * kThreads;
    const uint pair = unit % (HEAD_DIM / 2);
    const uint j = unit / (HEAD_DIM / 2) * kCouple;
    if (j >= QUERIES) break;
    vec2 sum[kCouple];
    [[unroll]] for (uint c = 0; c < kCouple; ++c) sum[c] = acc[n * kCouple + c] * factors[j + c];
    [[dont_unroll]] for (uint first = 0; first < MOE_ATTEND_BLOCK; first += 4) {
      [[unroll]] for (uint key = first; key < first + 4; ++key) {
        const vec2 value = block_value(key, pair);
        [[unroll]] for (uint c = 0; c < kCouple; ++c) {
          sum[c] = fma(vec2(weights[key * QUERIES + j + c]), value, sum[c]);
        }
      }
    }
    [[unroll]] for (uint c = 0; c < kCouple; ++c) acc[n * kCouple + c] = sum[c];
  }
}

uint split_at(uint j, uint split) {
  return (row * args.num_heads + first_head + j) * gl_NumWorkGroups.x + split;
}

void write_split() {
  [[unroll]] for (uint n = 0; n < kUnits; ++n) {
    const uint unit = thread_id() + n * kThreads;
    const uint j = unit / (HEAD_DIM / 2) * kCouple;
    [[unroll]] for (uint c = 0; c < kCouple; ++c) {
      if (j + c >= heads) break;
      const uint at = split_at(j + c, gl_WorkGroupID.x) * (HEAD_DIM / 2) + unit % (HEAD_DIM / 2);
      SharedF32x2(args.values).v[at] = acc[n * kCouple + c];
    }
  }
  if (thread_id() < heads) {
    SharedF32x2(args.stats).v[split_at(thread_id(), gl_WorkGroupID.x)] =
        vec2(tops[thread_id()], sums[thread_id()]);
  }
}

// Whether this work group is the last of `used`; what the others wrote is then seen.
bool is_last(uint used) {
  memoryBarrierBuffer();
  barrier();
  const uint at = row * gl_NumWorkGroups.y + gl_WorkGroupID.y;
  if (thread_id() == 0) arrived_before = atomicAdd(args.arrived.v[at], 1);
  barrier();
  if (arrived_before + 1 != used) return false;
  memoryBarrierBuffer();
  if (thread_id() == 0) args.arrived.v[at] = 0;
  return true;
}

// The factors of the splits, by which their values give the result; eight lanes for each query.
void find_factors(uint used) {
  const uint j = thread_id() / 8;
  if (j >= heads) return;
  float most = kLeast;
  for (uint s = thread_id() % 8; s < used; s += 8) {
    most = max(most, SharedF32x2(args.stats).v[split_at(j, s)].x);
  }
  most = lanes8_top(most);
  float total = 0.0;
  for (uint s = thread_id() % 8; s < used; s += 8) {
    const vec2 stats = SharedF32x2(args.stats).v[split_at(j, s)];
    const float factor = exact_exp(stats.x - most);
    split_factors[s * QUERIES + j] = factor;
    total = fma(factor, stats.y, total);
  }
  total = lanes8_sum(total);
  if (thread_id() % 8 == 0) sums[j] = total;
}

// The splits' values in order, four of a head for each thread; gated.
void merge(uint used) {
  for (uint unit = thread_id(); unit < heads * (HEAD_DIM / 4); unit += kThreads) {
    const uint j = unit / (HEAD_DIM / 4);
    const uint at = unit % (HEAD_DIM / 4);
    vec4 gate = vec4(0.0);
    if (args.has_gate != 0) {
      const uint gate_at = row * args.q_stride + (first_head + j) * args.q_step + HEAD_DIM;
      gate = F32x4(args.q).v[gate_at / 4 + at];
    }
    vec4 sum = vec4(0.0);
    [[dont_unroll]] for (uint first = 0; first < used; first += kAtOnce) {
      vec4 values[kAtOnce];
      [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
        const uint split = min(first + i, used - 1);
        values[i] = SharedF32x4(args.values).v[split_at(j, split) * (HEAD_DIM / 4) + at];
      }
      [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
        if (first + i < used) {
          sum = fma(vec4(split_factors[(first + i) * QUERIES + j]), values[i], sum);
        }
      }
    }
    sum /= sums[j];
    if (args.has_gate != 0) {
      sum *= vec4(sigmoid(gate.x), sigmoid(gate.y), sigmoid(gate.z), sigmoid(gate.w));
    }
    args.attended.v[(row * args.num_heads + first_head + j) * (HEAD_DIM / 4) + at] = sum;
  }
}

void main() {
  row = gl_WorkGroupID.z;
  const BatchRow place = args.rows.v[row];
  if (place.live == 0) return;
  const uint seen = place.position + 1;
  const uint blocks = (seen + MOE_ATTEND_BLOCK - 1) / MOE_ATTEND_BLOCK;
  const uint share = max((blocks + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x, args.least_blocks);
  const uint used = (blocks + share - 1) / share;
  if (gl_WorkGroupID.x >= used) return;
  const uint shared_by = args.num_heads / args.kv_heads;
  const uint tiles = (shared_by + QUERIES - 1) / QUERIES;
  const uint first_query = gl_WorkGroupID.y % tiles * QUERIES;
  kv_head = gl_WorkGroupID.y / tiles;
  first_head = kv_head * shared_by + first_query;
  heads = min(QUERIES, shared_by - first_query);
  lane = thread_id() % LANES;
  group = thread_id() / LANES;
  cache = args.caches.v[place.slice];
  load_queries();
  if (thread_id() < QUERIES) {
    tops[thread_id()] = kLeast;
    sums[thread_id()] = 0.0;
  }
  [[unroll]] for (uint n = 0; n < kUnits * kCouple; ++n) acc[n] = vec2(0.0);
  barrier();
  const uint begin = gl_WorkGroupID.x * share * MOE_ATTEND_BLOCK;
  const uint end = min(seen, begin + share * MOE_ATTEND_BLOCK);
  [[dont_unroll]] for (uint first = begin; first < end; first += MOE_ATTEND_BLOCK) {
    score_block(first, end - 1);
    barrier();
    weigh_block(end - first);
    barrier();
    add_values();
    barrier();
  }
  write_split();
  if (!is_last(used)) return;
  find_factors(used);
  barrier();
  merge(used);
}
