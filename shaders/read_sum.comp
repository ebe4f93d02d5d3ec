// Reads memory once, in order: the yardstick of what a kernel that reads weights can reach.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/read_sum_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { ReadSumArgs args; };

void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  uvec4 sum = uvec4(0);
  for (uint i = gl_GlobalInvocationID.x; i < args.vectors; i += 4 * stride) {
    [[unroll]] for (uint j = 0; j < 4; ++j) {
      if (i + j * stride < args.vectors) sum += args.data.v[i + j * stride];
    }
  }
  const uint total = subgroupAdd(sum.x + sum.y + sum.z + sum.w);
  if (subgroupElect()) atomicAdd(args.sums.v[gl_WorkGroupID.x], total);
}
