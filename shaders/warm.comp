// Brings weights into the device's cache while kernels run that leave its memory idle (warm_args.h).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/warm_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { WarmArgs args; };

void main() {
  const uint stride = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
  const uint vectors = args.vectors[gl_WorkGroupID.y];
  Words4 data = args.data[gl_WorkGroupID.y];
  uvec4 all = uvec4(0);
  [[dont_unroll]] for (uint i = gl_GlobalInvocationID.x; i < vectors; i += 4 * stride) {
    [[unroll]] for (uint j = 0; j < 4; ++j) all ^= data.v[min(i + j * stride, vectors - 1)];
  }
  // So that no read can be left out; no weights give this.
  if (all == uvec4(0x9E3779B9u, 0x7F4A7C15u, 0xF39CC060u, 0x5CEDC834u)) args.sink.v[0] = all.x;
}
