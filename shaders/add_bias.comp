// Adds the same values to all rows.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/add_bias_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { AddBiasArgs args; };

void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint c = gl_GlobalInvocationID.x; c < args.cols; c += stride) {
    args.y.v[gl_WorkGroupID.y * args.cols + c] += args.bias.v[c];
  }
}
