// Queries and keys before attention, and what of them goes to the cache (attention_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/kv.glsl"
#include "shaders/attention_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { QkPrepareArgs args; };

const uint kQuery = 0;
const uint kKey = 1;
const uint kValue = 2;

// Heads that this work group prepares; they share a norm.
struct Part {
  uint kind;
  uint head;
  uint heads;
  uint step;   // from head to head
  uint first;  // of the first head's values
};

uint row;
BatchRow place;

Part part_of(uint index) {
  const uint counts[3] = uint[3](args.num_heads, args.kv_heads, args.kv_heads);
  Part part = Part(index, 0, 0, HEAD_DIM, 0);
  if (args.is_whole_width != 0) {
    part.heads = counts[part.kind];
  } else {
    part.kind = 0;
    part.head = index;
    part.heads = 1;
    while (part.head >= counts[part.kind]) part.head -= counts[part.kind++];
  }
  if (part.kind == kQuery) part.step = args.q_step;
  const uint stride = part.kind == kQuery ? args.q_stride
                      : part.kind == kKey ? args.k_stride
                                          : args.v_stride;
  part.first = row * stride + part.head * part.step;
  return part;
}

float raw(Part part, uint h, uint d) {
  const uint at = part.first + h * part.step + d;
  if (part.kind == kQuery) return args.q.v[at];
  return part.kind == kKey ? args.k.v[at] : args.v.v[at];
}

void put(Part part, uint h, uint d, float x) {
  if (part.kind == kQuery) {
    precise float y = x * (1.0 / sqrt(float(HEAD_DIM)));
    args.q.v[part.first + h * part.step + d] = y;
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

float square_sum(Part part, float factor) {
  float sum = 0.0;
  for (uint i = thread_id(); i < part.heads * HEAD_DIM; i += gl_WorkGroupSize.x) {
    const float x = raw(part, i / HEAD_DIM, i % HEAD_DIM) * factor;
    sum = fma(x, x, sum);
  }
  return group_sum(sum);
}

float scale;
float shrink;  // of values before they are scaled

// Of a query or a key.
float normed(Part part, uint h, uint d) {
  const uint at = args.is_whole_width != 0 ? h * HEAD_DIM + d : d;
  const float factor = part.kind == kQuery ? args.q_norm.v[at] : args.k_norm.v[at];
  precise float y = raw(part, h, d) * shrink * scale * factor;
  return limited(y);
}

void norm(Part part) {
  const float width = float(part.heads * HEAD_DIM);
  const float sum = square_sum(part, 1.0);
  shrink = 1.0;
  scale = 1.0 / sqrt(sum / width + args.eps);
  if (is_finite(sum)) return;
  shrink = kShrink;
  scale = 1.0 / sqrt(square_sum(part, kShrink) / width);
}

void rotate(Part part, uint h, uint i) {
  const uint half_dim = args.rotary_dim / 2;
  precise float angle = float(place.position) * args.inverse_frequency.v[i];
  const vec2 turn = cos_sin(angle);
  const float a = normed(part, h, i);
  const float b = normed(part, h, i + half_dim);
  precise float x = a * turn.x - b * turn.y;
  precise float y = b * turn.x + a * turn.y;
  put(part, h, i, x);
  put(part, h, i + half_dim, y);
}

void main() {
  row = gl_WorkGroupID.y;
  place = args.rows.v[row];
  if (place.live == 0) return;
  const Part part = part_of(gl_WorkGroupID.x);
  if (part.kind == kValue) {
    for (uint i = thread_id(); i < part.heads * HEAD_DIM; i += gl_WorkGroupSize.x) {
      put(part, i / HEAD_DIM, i % HEAD_DIM, limited(raw(part, i / HEAD_DIM, i % HEAD_DIM)));
    }
    return;
  }
  norm(part);
  // A thread takes a pair that is rotated, or a value that is not.
  const uint half_dim = args.rotary_dim / 2;
  const uint units = HEAD_DIM - half_dim;
  for (uint i = thread_id(); i < part.heads * units; i += gl_WorkGroupSize.x) {
    const uint h = i / units;
    const uint unit = i % units;
    if (unit < half_dim) {
      rotate(part, h, unit);
    } else {
      put(part, h, unit + half_dim, normed(part, h, unit + half_dim));
    }
  }
}
