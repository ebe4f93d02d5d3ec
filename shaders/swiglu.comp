// The activation of projections that were computed apart, because their formats differ.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/swiglu_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ACTIVATION = 0;
layout(constant_id = 2) const float ACTIVATION_LIMIT = 0;
#include "shaders/expert_activation.h"
layout(push_constant, scalar) uniform Push { SwigluArgs args; };

void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < args.count; i += stride) {
    args.act.v[i] = activate(args.gate.v[i], args.up.v[i]);
  }
}
