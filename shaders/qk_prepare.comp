// Queries and keys before attention, and what of them goes to the cache (attention_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#define WAITS_BY_COUNTS
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/kv.glsl"
#include "shaders/attention_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 3) const uint HAS_NORM = 1;
layout(constant_id = 4) const uint ADDS_BIAS = 0;
layout(constant_id = 5) const float AMPLITUDE = 1.0;
layout(constant_id = 6) const float SCORE_SCALE = 0.0;  // of queries; 0: head_dim^-1/2
layout(constant_id = 7) const uint NORMS_VALUES = 0;
#define STAGE_ARGS QkPrepareArgs
#include "shaders/stage_order.glsl"

const uint kQuery = 0;
const uint kKey = 1;
const uint kValue = 2;

// Heads that this work group prepares; they share a norm. A thread takes two values of a head at a
// time: a pair that is rotated, or two side by side that are not.
struct Part {
  uint kind;
  uint head;
  uint heads;
  uint step;  // from head to head
  HandedF32 from;  // the first head's values
};

uint row;
BatchRow place;

Part part_of(uint index) {
  const uint counts[3] = uint[3](args.num_heads, args.kv_heads, args.kv_heads);
  Part part;
  part.kind = index;
  part.head = 0;
  if (args.is_whole_width == 0) {
    const uint keys = args.num_heads + args.kv_heads;
    part.kind = index < args.num_heads ? kQuery : index < keys ? kKey : kValue;
    part.head = index - (part.kind == kQuery ? 0 : part.kind == kKey ? args.num_heads : keys);
  }
  part.heads = args.is_whole_width == 0 ? 1 : part.kind == kQuery ? args.num_heads : args.kv_heads;
  part.step = part.kind == kQuery ? args.q_step : HEAD_DIM;
  const uint stride = part.kind == kQuery ? args.q_stride
                      : part.kind == kKey ? args.k_stride
                                          : args.v_stride;
  const uint64_t base = part.kind == kQuery ? uint64_t(args.q)
                        : part.kind == kKey ? uint64_t(args.k)
                                            : uint64_t(args.v);
  part.from = HandedF32(base + uint64_t(row * stride + part.head * part.step) * 4);
  return part;
}

// Places of the two values of a unit in its head.
uvec2 places_of(uint unit) {
  const uint half_dim = args.rotary_dim / 2;
  return unit < half_dim ? uvec2(unit, unit + half_dim) : uvec2(2 * unit, 2 * unit + 1);
}

void put(Part part, uint h, uint d, float x) {
  if (part.kind == kQuery) {
    precise float y = x * (SCORE_SCALE != 0.0 ? SCORE_SCALE : 1.0 / sqrt(float(HEAD_DIM)));
    part.from.v[h * part.step + d] = y;
  } else {
    kv_store(args.caches.v[place.slice],
             kv_index(place.position, part.kind == kValue ? 1 : 0, part.head + h, args.kv_heads) +
                 d,
             x);
  }
}

// NaN stays NaN: compilers make minimum and maximum of the comparisons alone, which lose it.
float limited(float x) {
  if ((floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u) return x;
  return x > args.clip ? args.clip : x < -args.clip ? -args.clip : x;
}

// Two values of head h of a part.
vec2 values_of(Part part, uint h, uvec2 at) {
  precise vec2 x = vec2(part.from.v[h * part.step + at.x], part.from.v[h * part.step + at.y]);
  if (ADDS_BIAS != 0) {
    uint first = part.head + h;
    if (part.kind != kQuery) first += args.num_heads;
    if (part.kind == kValue) first += args.kv_heads;
    x = x + vec2(args.bias.v[first * HEAD_DIM + at.x], args.bias.v[first * HEAD_DIM + at.y]);
  }
  return x;
}

float square_sum(Part part, float shrink) {
  float sum = 0.0;
  for (uint i = thread_id(); i < part.heads * (HEAD_DIM / 2); i += gl_WorkGroupSize.x) {
    const vec2 x =
        values_of(part, i / (HEAD_DIM / 2), places_of(i % (HEAD_DIM / 2))) * shrink;
    sum = fma(x.x, x.x, sum);
    sum = fma(x.y, x.y, sum);
  }
  return group_sum(sum);
}

// What values are multiplied with, the first first: it is 1 but for values whose squares are beyond
// float32.
vec2 scales_of(Part part) {
  const float width = float(part.heads * HEAD_DIM);
  vec2 scales = vec2(1.0);
  [[dont_unroll]] for (uint turn = 0; turn < 2; ++turn) {
    const float sum = square_sum(part, scales.x);
    scales.y = 1.0 / sqrt(sum / width + (turn == 0 ? args.eps : 0.0));
    if (is_finite(sum)) break;
    scales.x = kShrink;
  }
  return scales;
}

void run_stage() {
  await_stage(1);
  row = gl_WorkGroupID.y;
  place = args.rows.v[row];
  if (place.live == 0) return;
  Part part = part_of(gl_WorkGroupID.x);
  const bool is_value = part.kind == kValue;
  const bool is_normed = is_value ? NORMS_VALUES != 0 : HAS_NORM != 0;
  const vec2 scales = !is_normed ? vec2(1.0) : scales_of(part);
  F32 factors = part.kind == kQuery ? args.q_norm : args.k_norm;
  for (uint i = thread_id(); i < part.heads * (HEAD_DIM / 2); i += gl_WorkGroupSize.x) {
    const uint h = i / (HEAD_DIM / 2);
    const uint unit = i % (HEAD_DIM / 2);
    const uvec2 at = places_of(unit);
    vec2 x = values_of(part, h, at);
    if (is_normed) {
      const uint first = args.is_whole_width != 0 ? h * HEAD_DIM : 0;
      vec2 factor = vec2(1.0);
      if (!is_value) factor = vec2(factors.v[first + at.x], factors.v[first + at.y]);
      precise vec2 y = x * scales.x * scales.y * factor;
      x = y;
    }
    x = vec2(limited(x.x), limited(x.y));
    if (!is_value && unit < args.rotary_dim / 2) {
      precise float angle = float(place.position) * args.inverse_frequency.v[unit];
      precise vec2 turn = cos_sin(angle) * AMPLITUDE;
      precise vec2 turned = vec2(x.x * turn.x - x.y * turn.y, x.y * turn.x + x.x * turn.y);
      x = turned;
    }
    put(part, h, at.x, x.x);
    put(part, h, at.y, x.y);
  }
}
