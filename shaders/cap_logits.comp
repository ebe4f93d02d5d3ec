// The soft cap on logits (cap_logits_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/elementary.glsl"
#include "shaders/cap_logits_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { CapLogitsArgs args; };

void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < args.count; i += stride) {
    const float x = args.logits.v[i] / args.cap;
    // NaN stays NaN, whatever compilers make of comparisons.
    args.logits.v[i] = is_finite(x) || isinf(x) ? args.cap * exact_tanh(x) : x;
  }
}
