// Merges what the splits of the keys gave for one head of one row, and gates it.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/attention_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint HEAD_DIM = 128;
layout(push_constant, scalar) uniform Push { AttendCombineArgs args; };

const float kLeast = -3.0e38;
const uint kAtOnce = 8;  // splits whose values are loaded together

shared vec2 factors[256];  // of each split: of its values; times its sum of weights

void main() {
  const uint head = gl_WorkGroupID.x;
  const uint row = gl_WorkGroupID.y;
  const BatchRow place = args.rows.v[row];
  if (place.live == 0) return;
  const uint blocks = (place.position + args.block) / args.block;
  const uint share = (blocks + args.splits - 1) / args.splits;
  const uint used = (blocks + share - 1) / share;
  const uint at = (row * args.num_heads + head) * args.splits;
  // The factor of each split, in shared memory.
  float most = kLeast;
  for (uint s = thread_id(); s < used; s += gl_WorkGroupSize.x) {
    most = max(most, args.stats.v[2 * (at + s)]);
  }
  most = group_top(most);
  for (uint s = thread_id(); s < used; s += gl_WorkGroupSize.x) {
    const float factor = exact_exp(args.stats.v[2 * (at + s)] - most);
    factors[s] = vec2(factor, factor * args.stats.v[2 * (at + s) + 1]);
  }
  barrier();
  float total = 0.0;
  for (uint s = 0; s < used; ++s) total += factors[s].y;
  for (uint d = thread_id(); d < HEAD_DIM; d += gl_WorkGroupSize.x) {
    float gate = 1.0;
    if (args.has_gate != 0) {
      gate = sigmoid(args.q.v[row * args.q_stride + head * args.q_step + HEAD_DIM + d]);
    }
    float sum = 0.0;
    for (uint first = 0; first < used; first += kAtOnce) {
      float values[kAtOnce];
      [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
        values[i] = args.values.v[(at + min(first + i, used - 1)) * HEAD_DIM + d];
      }
      [[unroll]] for (uint i = 0; i < kAtOnce; ++i) {
        if (first + i < used) sum = fma(factors[first + i].x, values[i], sum);
      }
    }
    args.attended.v[(row * args.num_heads + head) * HEAD_DIM + d] = sum / total * gate;
  }
}
