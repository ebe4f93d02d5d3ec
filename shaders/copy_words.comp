// Copies words (copy_words_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/copy_words_args.h"

layout(local_size_x_id = 0) in;
#define STAGE_ARGS CopyWordsArgs
#include "shaders/stage_order.glsl"

void run_stage() {
  await_stage(1);
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  for (uint i = gl_GlobalInvocationID.x; i < args.count; i += stride) {
    args.to.v[i] = args.from.v[i];
  }
}
