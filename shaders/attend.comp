// One token against some of the keys, by online softmax (FlashAttention, arXiv 2205.14135): several
// query heads that share keys and values. Each group of lanes takes keys of its own; the lanes share
// the values of a head.
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

const uint kGroups = 8;
const uint kKeys = LANES / QUERIES;     // that a group of lanes takes at once
const uint kBlock = kGroups * kKeys;    // that the work group takes at once
const uint kChunks = (HEAD_DIM / 8 + LANES - 1) / LANES;  // of 8 values, per lane
const uint kVectors = 2 * kChunks;
// Below every score, and finite: a weight of exp(-infinity - least) is 0.
const float kLeast = -3.0e38;

shared vec4 group_values[kGroups * HEAD_DIM / 4];  // of one query
shared vec2 group_stats[kGroups * QUERIES];        // largest score, sum of weights
shared float group_factors[kGroups * QUERIES];     // of the values, when the groups are merged

uint row;
uint kv_head;
uint lane;
uint group;
uint first_lane;  // of the group, in its subgroup
Words cache;
vec4 q[QUERIES * kVectors];
vec4 acc[QUERIES * kVectors];

void load_queries(uint first_head, uint heads) {
  [[unroll]] for (uint j = 0; j < QUERIES; ++j) {
    [[unroll]] for (uint n = 0; n < kVectors; ++n) {
      const uint d = 8 * (lane + n / 2 * LANES) + n % 2 * 4;
      vec4 x = vec4(0.0);
      if (j < heads && d < HEAD_DIM) {
        const uint at = row * args.q_stride + (first_head + j) * args.q_step + d;
        x = F32x4(args.q).v[at / 4];
      }
      q[j * kVectors + n] = x;
      acc[j * kVectors + n] = vec4(0.0);
    }
  }
}

void load_row(uint key, uint is_value, out vec4 x[kVectors]) {
  const uint index = kv_index(key, is_value, kv_head, args.kv_heads);
  [[unroll]] for (uint n = 0; n < kChunks; ++n) {
    const uint d = 8 * (lane + n * LANES);
    x[2 * n] = vec4(0.0);
    x[2 * n + 1] = vec4(0.0);
    if (d < HEAD_DIM) kv_load8(cache, index + d, x[2 * n], x[2 * n + 1]);
  }
}

// What lane l gives for score i goes to lane i: a step sends half of what is left to the lane across
// and adds what comes from there. In the end lane i has the sum of score i.
#define TRANSPOSE(distance)                                                    \
  if (LANES > distance) {                                                      \
    const bool is_upper = (lane & distance) != 0;                              \
    [[unroll]] for (uint i = 0; i < distance; ++i) {                           \
      const float kept = is_upper ? scores[i + distance] : scores[i];          \
      const float sent = is_upper ? scores[i] : scores[i + distance];          \
      scores[i] = kept + subgroupShuffleXor(sent, distance);                   \
    }                                                                          \
  }

// Of key lane / QUERIES and query lane % QUERIES.
float score_keys(uint key, uint last) {
  float scores[64];
  [[unroll]] for (uint i = 0; i < kKeys; ++i) {
    vec4 k[kVectors];
    load_row(min(key + i * kGroups, last), 0, k);
    [[unroll]] for (uint j = 0; j < QUERIES; ++j) {
      precise float sum = 0.0;
      [[unroll]] for (uint n = 0; n < kVectors; ++n) {
        sum = fma(q[j * kVectors + n].x, k[n].x, sum);
        sum = fma(q[j * kVectors + n].y, k[n].y, sum);
        sum = fma(q[j * kVectors + n].z, k[n].z, sum);
        sum = fma(q[j * kVectors + n].w, k[n].w, sum);
      }
      scores[i * QUERIES + j] = sum;
    }
  }
  TRANSPOSE(32)
  TRANSPOSE(16)
  TRANSPOSE(8)
  TRANSPOSE(4)
  TRANSPOSE(2)
  TRANSPOSE(1)
  return scores[0];
}

void add_values(uint key, uint last, float weight, float factor) {
  [[unroll]] for (uint j = 0; j < QUERIES; ++j) {
    const float by = subgroupShuffle(factor, first_lane + j);
    [[unroll]] for (uint n = 0; n < kVectors; ++n) acc[j * kVectors + n] *= by;
  }
  [[unroll]] for (uint i = 0; i < kKeys; ++i) {
    vec4 v[kVectors];
    load_row(min(key + i * kGroups, last), 1, v);
    [[unroll]] for (uint j = 0; j < QUERIES; ++j) {
      const float by = subgroupShuffle(weight, first_lane + i * QUERIES + j);
      [[unroll]] for (uint n = 0; n < kVectors; ++n) {
        precise vec4 sum = fma(vec4(by), v[n], acc[j * kVectors + n]);
        acc[j * kVectors + n] = sum;
      }
    }
  }
}

// Largest score and sum of weights of this lane's query over the keys from `begin` to `end`.
vec2 attend(uint begin, uint end) {
  float most = kLeast;
  float sum = 0.0;
  for (uint first = begin; first < end; first += kBlock) {
    const uint key = first + group;
    const float score = score_keys(key, end - 1);
    const bool is_seen = key + lane / QUERIES * kGroups < end;
    float top = is_seen ? max(most, score) : most;
    [[unroll]] for (uint distance = QUERIES; distance < LANES; distance *= 2) {
      top = max(top, subgroupShuffleXor(top, distance));
    }
    const float factor = exact_exp(most - top);
    const float weight = is_seen ? exact_exp(score - top) : 0.0;
    precise float next = fma(sum, factor, weight);
    sum = next;
    most = top;
    add_values(key, end - 1, weight, factor);
  }
  [[unroll]] for (uint distance = QUERIES; distance < LANES; distance *= 2) {
    precise float both = sum + subgroupShuffleXor(sum, distance);
    sum = both;
  }
  return vec2(most, sum);
}

float most_of(uint j) {
  float most = kLeast;
  [[unroll]] for (uint g = 0; g < kGroups; ++g) most = max(most, group_stats[g * QUERIES + j].x);
  return most;
}

// Behind a barrier; another one follows before they are used.
void find_factors() {
  const uint i = thread_id();
  if (i < kGroups * QUERIES) {
    group_factors[i] = exact_exp(group_stats[i].x - most_of(i % QUERIES));
  }
}

// Merges the groups' results for query j, in order.
void write_query(uint j, uint head) {
  const uint at = (row * args.num_heads + head) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  for (uint d = thread_id(); d < HEAD_DIM; d += gl_WorkGroupSize.x) {
    float sum = 0.0;
    [[unroll]] for (uint g = 0; g < kGroups; ++g) {
      sum = fma(group_factors[g * QUERIES + j], group_values[(g * HEAD_DIM + d) / 4][d % 4], sum);
    }
    args.values.v[at * HEAD_DIM + d] = sum;
  }
  if (thread_id() != 0) return;
  float total = 0.0;
  [[unroll]] for (uint g = 0; g < kGroups; ++g) {
    total = fma(group_factors[g * QUERIES + j], group_stats[g * QUERIES + j].y, total);
  }
  args.stats.v[2 * at] = most_of(j);
  args.stats.v[2 * at + 1] = total;
}

// This group's values for query j, into shared memory.
void share_values(uint j) {
  [[unroll]] for (uint n = 0; n < kVectors; ++n) {
    const uint d = 8 * (lane + n / 2 * LANES) + n % 2 * 4;
    if (d < HEAD_DIM) group_values[(group * HEAD_DIM + d) / 4] = acc[j * kVectors + n];
  }
}

void main() {
  row = gl_WorkGroupID.z;
  const BatchRow place = args.rows.v[row];
  if (place.live == 0) return;
  const uint seen = place.position + 1;
  const uint blocks = (seen + kBlock - 1) / kBlock;
  const uint share = (blocks + gl_NumWorkGroups.x - 1) / gl_NumWorkGroups.x * kBlock;
  const uint begin = gl_WorkGroupID.x * share;
  if (begin >= seen) return;
  const uint shared_by = args.num_heads / args.kv_heads;
  const uint tiles = (shared_by + QUERIES - 1) / QUERIES;
  const uint first = gl_WorkGroupID.y % tiles * QUERIES;
  kv_head = gl_WorkGroupID.y / tiles;
  lane = thread_id() % LANES;
  group = thread_id() / LANES;
  first_lane = gl_SubgroupInvocationID / LANES * LANES;
  cache = args.caches.v[place.slice];
  const uint first_head = kv_head * shared_by + first;
  const uint heads = min(QUERIES, shared_by - first);
  load_queries(first_head, heads);
  const vec2 stats = attend(begin, min(seen, begin + share));
  if (lane < QUERIES) group_stats[group * QUERIES + lane] = stats;
  barrier();
  find_factors();
  // Loops over registers are unrolled, and none is left early: the index stays a constant.
  [[unroll]] for (uint j = 0; j < QUERIES; ++j) {
    if (j < heads) {
      share_values(j);
      barrier();
      write_query(j, first_head + j);
      barrier();
    }
  }
}
