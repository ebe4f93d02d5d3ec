// RMSNorm of rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/rms_norm_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ADDS = 0;  // to what y holds
layout(push_constant, scalar) uniform Push { RmsNormArgs args; };

uint first;

float square_sum(float factor) {
  float sum = 0.0;
  for (uint i = thread_id(); i < args.width; i += gl_WorkGroupSize.x) {
    const float x = args.x.v[first + i] * factor;
    sum = fma(x, x, sum);
  }
  return group_sum(sum);
}

void main() {
  first = gl_WorkGroupID.x * args.x_stride;
  const float sum = square_sum(1.0);
  float shrink = 1.0;
  float scale = 1.0 / sqrt(sum / float(args.width) + args.eps);
  if (!is_finite(sum)) {
    shrink = kShrink;
    scale = 1.0 / sqrt(square_sum(kShrink) / float(args.width));
  }
  for (uint i = thread_id(); i < args.width; i += gl_WorkGroupSize.x) {
    precise float y = args.x.v[first + i] * shrink * scale * args.factor.v[i];
    const uint at = gl_WorkGroupID.x * args.y_stride + i;
    args.y.v[at] = ADDS != 0 ? args.y.v[at] + y : y;
  }
}
