// Adds what the experts of a row gave, in the order of its slots.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/combine_args.h"
#include "shaders/expert_slots.glsl"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { CombineArgs args; };

void main() {
  const uint row = gl_WorkGroupID.y;
  for (uint c = gl_GlobalInvocationID.x; c < args.cols;
       c += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    float sum = 0;
    for (uint slot = 0; slot < args.slots; ++slot) {
      const Choice choice = args.choices.v[row * args.slots + slot];
      if (find_record(args.records, args.experts, choice.expert) == 0) continue;
      sum += choice.weight * args.results.v[(row * args.slots + slot) * args.y_stride + c];
    }
    args.y.v[row * args.y_stride + c] += sum;
  }
}
