// Fills memory with a word (fill_words_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/fill_words_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { FillWordsArgs args; };

void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < args.count; i += stride) {
    args.to.v[i] = uvec4(args.word);
  }
}
