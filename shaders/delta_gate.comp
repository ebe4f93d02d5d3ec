// Norms and gates what delta_recur left, in place: eight lanes a V head of a row.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/mixer_types.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/delta.glsl"
#include "shaders/delta_norm.glsl"
#include "shaders/delta_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { DeltaGateArgs args; };

void main() {
  const uint unit = gl_WorkGroupID.x * (gl_WorkGroupSize.x / 8) + thread_id() / 8;
  const uint row = unit / args.value_heads;
  const uint head = unit % args.value_heads;
  const bool is_valid = row < args.count && args.rows.v[min(row, args.count - 1)].live != 0;
  const uint at = is_valid ? unit * VALUE_DIM : 0;
  float sum = 0.0;
  for (uint i = thread_id() % 8; i < VALUE_DIM; i += 8) sum = add_square(sum, args.mixed.v[at + i]);
  DeltaNorm norm = norm_of(lanes8_sum(sum), args.eps);
  sum = 0.0;
  for (uint i = thread_id() % 8; i < VALUE_DIM && norm.is_wide; i += 8) {
    sum = add_square(sum, args.mixed.v[at + i] * kShrink);
  }
  const float wide = wide_scale(lanes8_sum(sum));
  if (norm.is_wide) norm.scale = wide;
  if (!is_valid) return;
  for (uint i = thread_id() % 8; i < VALUE_DIM; i += 8) {
    args.mixed.v[at + i] = gated(norm, args.mixed.v[at + i], args.norm.v[i],
                                 args.z.v[row * args.z_stride + head * VALUE_DIM + i]);
  }
}
