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
#include "shaders/last_group.glsl"
#include "shaders/attention_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint LANES = 8;
layout(constant_id = 4) const uint QUERIES = 4;
layout(constant_id = 5) const uint HAS_SINKS = 0;
layout(constant_id = 6) const uint WINDOW = 0;  // keys that a token sees; 0: all
// Lanes exchange values through shared memory, so that tests have more of them than a subgroup has.
layout(constant_id = 7) const uint WIDE_LANES = 0;
#define STAGE_ARGS AttendArgs
#include "shaders/stage_order.glsl"

const uint kGroups = 8;  // of lanes
const uint kUsualBlock = HEAD_DIM > 256 ? MOE_ATTEND_BLOCK / 2 : MOE_ATTEND_BLOCK;
const uint kBlock = KV_ENCODING == 0 ? kUsualBlock / 2 : kUsualBlock;
const uint kKeys = kBlock / kGroups;
const uint kTurns = (kBlock + LANES - 1) / LANES;  // keys of a lane when they are weighed
const uint kScores = kKeys * QUERIES;  // that a group of lanes forms at once
const uint kChunks = (HEAD_DIM / 8 + LANES - 1) / LANES;  // of 8 values, per lane
const uint kRaw = KV_ENCODING == 0 ? 2 : 1;               // loads of a chunk
// Values: a thread has two of a head for one query or two.
const uint kCouple = QUERIES == 1 ? 1 : 2;
const uint kThreads = kGroups * LANES;
const uint kUnits = (HEAD_DIM / 2 * (QUERIES / kCouple) + kThreads - 1) / kThreads;
const uint kStats = (MOE_ATTEND_SPLITS + LANES - 1) / LANES;  // splits of a lane
const uint kAtOnce = 16;  // splits whose values are loaded together
// Below every score, and finite: a weight of exp(-infinity - least) is 0.
const float kLeast = -3.0e38;

shared vec4 queries[QUERIES * HEAD_DIM / 4];
shared uvec4 block_values[kBlock * HEAD_DIM / 8 * kRaw];
shared float weights[kBlock * QUERIES];  // scores, then weights
shared float tops[QUERIES];                        // largest scores
shared float sums[QUERIES];                        // of weights
shared float factors[QUERIES];                     // of what there is, from block to block
shared float split_factors[MOE_ATTEND_SPLITS * QUERIES];
shared float exchanged[WIDE_LANES != 0 ? kThreads : 1];

uint row;
uint kv_head;
uint first_head;
uint heads;
uint lane;
uint group;
Words cache;
vec2 acc[kUnits * kCouple];
vec4 k[kKeys * 2 * kChunks];         // of the block that is computed
uvec4 raw[kKeys * kChunks * kRaw];  // its values, as they are

// What the lane across has. All threads call it.
float across(float x, uint distance) {
  if (WIDE_LANES == 0) return subgroupShuffleXor(x, distance);
  barrier();
  exchanged[thread_id()] = x;
  barrier();
  return exchanged[thread_id() ^ distance];
}

void load_queries() {
  for (uint i = thread_id(); i < QUERIES * HEAD_DIM / 4; i += kThreads) {
    const uint j = min(i / (HEAD_DIM / 4), heads - 1);
    const uint at = row * args.q_stride + (first_head + j) * args.q_step;
    queries[i] = HandedF32x4(args.q).v[at / 4 + i % (HEAD_DIM / 4)];
  }
}

uvec4 load_raw(uint key, uint is_value, uint chunk, uint part) {
  const uint at = kv_index(key, is_value, kv_head, args.kv_heads) + 8 * chunk;
  return Words4(cache).v[KV_ENCODING == 0 ? at / 4 + part : at / 8];
}

// The i-th key of this group of lanes and its values.
void load_key(uint i, uint key) {
  [[unroll]] for (uint n = 0; n < kChunks; ++n) {
    const uint chunk = lane + n * LANES;
    k[(i * kChunks + n) * 2] = vec4(0.0);
    k[(i * kChunks + n) * 2 + 1] = vec4(0.0);
    if (chunk < HEAD_DIM / 8) {
      kv_load8(cache, kv_index(key, 0, kv_head, args.kv_heads) + 8 * chunk,
               k[(i * kChunks + n) * 2], k[(i * kChunks + n) * 2 + 1]);
      [[unroll]] for (uint part = 0; part < kRaw; ++part) {
        raw[(i * kChunks + n) * kRaw + part] = load_raw(key, 1, chunk, part);
      }
    }
  }
}

void load_block(uint first, uint last) {
  [[unroll]] for (uint i = 0; i < kKeys; ++i) load_key(i, min(first + i * kGroups + group, last));
}

// The position from which on the sequence's keys are of this batch, whose rows follow each other.
uint first_new(BatchRow place) {
  uint first = row;
  [[dont_unroll]] while (first > 0) {
    const BatchRow before = args.rows.v[first - 1];
    if (before.slice != place.slice || before.live == 0) break;
    --first;
  }
  return place.position - (row - first);
}

// The block at `first` of [begin, end): what earlier batches left is loaded while the stage before,
// which stores the keys of this one, is waited for.
void await_block(uint first, uint end, BatchRow place) {
#ifndef ORDERED
  load_block(first, end - 1);
#else
  // Keys that share a line with older ones would come from the core's own cache, as they were.
  const uint kLine = 128;
  const uint position_bytes = 2 * args.kv_heads * HEAD_DIM * (KV_ENCODING == 0 ? 4 : 2);
  const uint known = position_bytes % kLine != 0 ? 0 : min(end, first_new(place));
  if (first < known) load_block(first, known - 1);
  await_stage(1);
  [[unroll]] for (uint i = 0; i < kKeys; ++i) {
    const uint key = min(first + i * kGroups + group, end - 1);
    if (key >= known) load_key(i, key);
  }
#endif
}

void share_values() {
  [[unroll]] for (uint i = 0; i < kKeys; ++i) {
    [[unroll]] for (uint n = 0; n < kChunks; ++n) {
      const uint chunk = lane + n * LANES;
      if (chunk < HEAD_DIM / 8) {
        const uint at = ((i * kGroups + group) * (HEAD_DIM / 8) + chunk) * kRaw;
        [[unroll]] for (uint part = 0; part < kRaw; ++part) {
          block_values[at + part] = raw[(i * kChunks + n) * kRaw + part];
        }
      }
    }
  }
}

// Sums over the lanes: while there are several scores, a lane gives half of them to the lane across and
// keeps the other half; then all add what they have.
#define ADD_ACROSS(step)                                                          \
  if (LANES >> step > 1) {                                                        \
    const uint left = kScores >> (step + 1);                                      \
    const bool is_upper = (lane >> step & 1) != 0;                                \
    if (left > 0) {                                                               \
      [[unroll]] for (uint i = 0; i < left; ++i) {                                \
        const float kept = is_upper ? scores[i + left] : scores[i];               \
        const float sent = is_upper ? scores[i] : scores[i + left];               \
        scores[i] = kept + across(sent, 1 << step);                               \
      }                                                                           \
      mine += is_upper ? left : 0;                                                \
    } else {                                                                      \
      scores[0] += across(scores[0], 1 << step);                                  \
    }                                                                             \
  }

void score_block() {
  float scores[kScores];
  [[unroll]] for (uint i = 0; i < kScores; ++i) scores[i] = 0.0;
  [[unroll]] for (uint j = 0; j < QUERIES; ++j) {
    [[unroll]] for (uint n = 0; n < kChunks; ++n) {
      const uint chunk = min(lane + n * LANES, HEAD_DIM / 8 - 1);
      [[unroll]] for (uint half_chunk = 0; half_chunk < 2; ++half_chunk) {
        const vec4 x = queries[j * (HEAD_DIM / 4) + 2 * chunk + half_chunk];
        [[unroll]] for (uint i = 0; i < kKeys; ++i) {
          const vec4 y = k[(i * kChunks + n) * 2 + half_chunk];
          precise float sum = scores[i * QUERIES + j];
          sum = fma(x.x, y.x, sum);
          sum = fma(x.y, y.y, sum);
          sum = fma(x.z, y.z, sum);
          sum = fma(x.w, y.w, sum);
          scores[i * QUERIES + j] = sum;
        }
      }
    }
  }
  uint mine = 0;  // number of the first score that this lane has in the end
  ADD_ACROSS(0)
  ADD_ACROSS(1)
  ADD_ACROSS(2)
  ADD_ACROSS(3)
  ADD_ACROSS(4)
  if (lane >= kScores) return;
  [[unroll]] for (uint i = 0; i < (kScores + LANES - 1) / LANES; ++i) {
    const uint key = (mine + i) / QUERIES * kGroups + group;
    weights[key * QUERIES + (mine + i) % QUERIES] = scores[i];
  }
}

// e^x of x <= 0; 0 where that is below every normal number.
float exp_below(float x) {
  const float n = floor(x * 1.44269504 + 0.5);
  precise float r = x - n * 0.693359375;
  r = r - n * -2.12194440e-4;
  precise float y = 1.9875691500e-4 * r + 1.3981999507e-3;
  y = y * r + 8.3334519073e-3;
  y = y * r + 4.1665795894e-2;
  y = y * r + 1.6666665459e-1;
  y = y * r + 5.0000001201e-1;
  y = (y * (r * r) + r) + 1.0;
  return x < -87.0 ? 0.0 : y * uintBitsToFloat(uint(int(n) + 127) << 23);
}

float lanes_top(float x) {
  [[unroll]] for (uint distance = 1; distance < LANES; distance *= 2) {
    x = max(x, across(x, distance));
  }
  return x;
}

float lanes_sum(float x) {
  precise float sum = x;
  [[unroll]] for (uint distance = 1; distance < LANES; distance *= 2) {
    sum = sum + across(sum, distance);
  }
  return sum;
}

// The weights of the block's first `count` keys, by a group of lanes for each query; there may be
// more lanes than the block has keys.
void weigh_block(uint count) {
  const bool is_idle = group >= QUERIES;
  if (WIDE_LANES == 0 && is_idle) return;
  const uint j = min(group, QUERIES - 1);
  float x[kTurns];
  const float before = tops[j];
  float top = before;
  [[unroll]] for (uint n = 0; n < kTurns; ++n) {
    const uint key = lane + n * LANES;
    x[n] = weights[min(key, kBlock - 1) * QUERIES + j];
    if (key < count) top = max(top, x[n]);
  }
  top = lanes_top(top);
  float sum = 0.0;
  [[unroll]] for (uint n = 0; n < kTurns; ++n) {
    const uint key = lane + n * LANES;
    const float weight = key < count ? exp_below(x[n] - top) : 0.0;
    if (key < kBlock && !is_idle) weights[key * QUERIES + j] = weight;
    sum += weight;
  }
  sum = lanes_sum(sum);
  const float factor = exp_below(before - top);
  if (lane != 0 || is_idle) return;
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
    [[dont_unroll]] for (uint first = 0; first < kBlock; first += 4) {
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

// The factors of the splits, by which their values give the result; a group of lanes for each query.
void find_factors(uint used) {
  const bool is_idle = group >= heads;
  if (WIDE_LANES == 0 && is_idle) return;
  const uint j = min(group, heads - 1);
  vec2 stats[kStats];
  float most = kLeast;
  [[unroll]] for (uint n = 0; n < kStats; ++n) {
    const uint split = min(lane + n * LANES, used - 1);
    stats[n] = SharedF32x2(args.stats).v[split_at(j, split)];
  }
  [[unroll]] for (uint n = 0; n < kStats; ++n) most = max(most, stats[n].x);
  most = lanes_top(most);
  if (HAS_SINKS != 0) most = max(most, args.sinks.v[first_head + j]);
  float total = 0.0;
  [[unroll]] for (uint n = 0; n < kStats; ++n) {
    const uint split = lane + n * LANES;
    const float factor = exp_below(stats[n].x - most);
    if (split < used && !is_idle) {
      split_factors[split * QUERIES + j] = factor;
      total = fma(factor, stats[n].y, total);
    }
  }
  total = lanes_sum(total);
  if (HAS_SINKS != 0) total += exp_below(args.sinks.v[first_head + j] - most);
  if (lane == 0 && !is_idle) sums[j] = total;
}

float gate_of(float x) {
  const float e = exp_below(-abs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

// The splits' values in order, four of a head for each thread; gated. Those of the first splits are
// loaded before the factors are known.
void merge(uint used) {
  const uint units = heads * (HEAD_DIM / 4);
  [[dont_unroll]] for (uint first_unit = 0; first_unit < units; first_unit += kThreads) {
    const uint unit = min(first_unit + thread_id(), units - 1);
    const uint j = unit / (HEAD_DIM / 4);
    const uint d = unit % (HEAD_DIM / 4);
    const uint q_at = row * args.q_stride + (first_head + j) * args.q_step + HEAD_DIM;
    vec4 gate = vec4(0.0);
    if (args.has_gate != 0) gate = HandedF32x4(args.q).v[q_at / 4 + d];
    vec4 sum = vec4(0.0);
    [[dont_unroll]] for (uint first = 0; first < used; first += kAtOnce) {
      vec4 values[kAtOnce];
      [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
        const uint at = split_at(j, min(first + i, used - 1)) * (HEAD_DIM / 4) + d;
        values[i] = SharedF32x4(args.values).v[at];
      }
      if (first_unit + first == 0) {
        find_factors(used);
        barrier();
      }
      [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
        const float factor = first + i < used ? split_factors[(first + i) * QUERIES + j] : 0.0;
        if (first + i < used) sum = fma(vec4(factor), values[i], sum);
      }
    }
    sum *= 1.0 / sums[j];
    if (args.has_gate != 0) {
      sum *= vec4(gate_of(gate.x), gate_of(gate.y), gate_of(gate.z), gate_of(gate.w));
    }
    const uint head = row * args.num_heads + first_head + j;
    args.attended.v[head * (HEAD_DIM / 4) + d] = sum;
  }
}

void run_stage() {
  row = gl_WorkGroupID.z;
  const BatchRow place = args.rows.v[row];
  const uint shared_by = args.num_heads / args.kv_heads;
  const uint tiles = (shared_by + QUERIES - 1) / QUERIES;
  const uint first_query = gl_WorkGroupID.y % tiles * QUERIES;
  kv_head = gl_WorkGroupID.y / tiles;
  first_head = kv_head * shared_by + first_query;
  heads = min(QUERIES, shared_by - first_query);
  lane = thread_id() % LANES;
  group = thread_id() / LANES;
  if (place.live == 0) return;
  const uint seen = place.position + 1;
  const uint hidden = WINDOW != 0 ? seen - min(seen, WINDOW) : 0;  // keys before those it sees
  const uint blocks = (seen - hidden + kBlock - 1) / kBlock;
  const uint share = (blocks + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x;
  const uint used = (blocks + share - 1) / share;
  if (gl_WorkGroupID.x >= used) return;
  cache = args.caches.v[place.slice];
  if (thread_id() < QUERIES) {
    tops[thread_id()] = kLeast;
    sums[thread_id()] = 0.0;
  }
  [[unroll]] for (uint n = 0; n < kUnits * kCouple; ++n) acc[n] = vec2(0.0);
  const uint begin = hidden + gl_WorkGroupID.x * share * kBlock;
  const uint end = min(seen, begin + share * kBlock);
  await_block(begin, end, place);
  load_queries();
  [[dont_unroll]] for (uint first = begin; first < end; first += kBlock) {
    if (first != begin) load_block(first, end - 1);
    barrier();
    score_block();
    share_values();
    barrier();
    weigh_block(min(end - first, kBlock));
    barrier();
    add_values();
  }
  write_split();
  const uint at = row * gl_NumWorkGroups.y + gl_WorkGroupID.y;
  if (is_last_group(args.arrived, at, used)) merge(used);
}
