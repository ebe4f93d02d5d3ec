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

void main() {
  const uint head = gl_WorkGroupID.x;
  const uint row = gl_WorkGroupID.y;
  const BatchRow place = args.rows.v[row];
  if (place.live == 0) return;
  const uint blocks = (place.position + args.block) / args.block;
  const uint share = (blocks + args.splits - 1) / args.splits;
  const uint used = (blocks + share - 1) / share;
  const uint at = (row * args.num_heads + head) * args.splits;
  float most = args.stats.v[2 * at];
  for (uint s = 1; s < used; ++s) most = max(most, args.stats.v[2 * (at + s)]);
  float total = 0.0;
  for (uint s = 0; s < used; ++s) {
    total = fma(exact_exp(args.stats.v[2 * (at + s)] - most), args.stats.v[2 * (at + s) + 1], total);
  }
  for (uint d = thread_id(); d < HEAD_DIM; d += gl_WorkGroupSize.x) {
    float sum = 0.0;
    for (uint s = 0; s < used; ++s) {
      sum = fma(exact_exp(args.stats.v[2 * (at + s)] - most), args.values.v[(at + s) * HEAD_DIM + d],
                sum);
    }
    float y = sum / total;
    if (args.has_gate != 0) {
      y *= sigmoid(args.q.v[row * args.q_stride + head * args.q_step + HEAD_DIM + d]);
    }
    args.attended.v[(row * args.num_heads + head) * HEAD_DIM + d] = y;
  }
}
