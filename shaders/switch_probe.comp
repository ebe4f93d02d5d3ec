// A small program with as many threads and as much shared memory as is asked for: what a switch
// between two programs costs (bench/vulkan_limits_bench).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/read_sum_args.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint SHARED_WORDS = 1;
layout(constant_id = 2) const uint VARIANT = 0;

layout(push_constant, scalar) uniform Push { ReadSumArgs args; };

shared uint words[SHARED_WORDS];

void main() {
  const uint i = gl_LocalInvocationIndex;
  words[i % SHARED_WORDS] = args.vectors + VARIANT;
  barrier();
  const uint sum = words[(i * 7 + VARIANT) % SHARED_WORDS];
  if (sum == 12345678u) Words(uint64_t(args.sums)).v[i] = sum;
}
