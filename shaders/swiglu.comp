// SwiGLU of projections that were computed apart, because their formats differ.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/swiglu_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { SwigluArgs args; };

void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < args.count; i += stride) {
    const float gate = args.gate.v[i];
    args.act.v[i] = gate / (1 + exp(-gate)) * args.up.v[i];
  }
}
