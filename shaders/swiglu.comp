// The activation of experts, where gate and up were computed apart.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/swiglu_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { SwigluArgs args; };

void main() {
  for (uint i = gl_GlobalInvocationID.x; i < args.count;
       i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    const float gate = args.act.v[i];
    args.act.v[i] = gate / (1.0 + exp(-gate)) * args.up.v[i];
  }
}
