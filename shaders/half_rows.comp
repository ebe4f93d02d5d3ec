// Rows of 16-bit floats with a power of two each, the inputs of cooperative matrices: large
// activations cannot overflow, and dividing by a power of two rounds nothing.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/addresses.glsl"
#include "shaders/half_rows_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { HalfRowsArgs args; };

shared uint most_of_subgroup[128];

// Bits of magnitudes order as the magnitudes do, infinities and NaN above all.
uint largest_magnitude(F32 x) {
  uint most = 0;
  for (uint c = gl_LocalInvocationIndex; c < args.cols; c += gl_WorkGroupSize.x) {
    most = max(most, floatBitsToUint(x.v[c]) & 0x7fffffffu);
  }
  most = subgroupMax(most);
  if (subgroupElect()) most_of_subgroup[gl_SubgroupID] = most;
  barrier();
  for (uint i = 0; i < gl_NumSubgroups; ++i) most = max(most, most_of_subgroup[i]);
  return most;
}

void main() {
  const uint row = gl_WorkGroupID.x;
  F32 x = F32(address_of_row(uint64_t(args.x), row, args.x_stride, 4));
  Words y = Words(address_of_row(uint64_t(args.y), row, args.y_stride, 2));
  const uint most = largest_magnitude(x);
  // Exponents as stored, offset by 127. Below 2^-99 a row becomes smaller halves rather than a scale
  // whose inverse is no normal float.
  const uint exponent = max(most >> 23, 28u);
  const bool as_is = most == 0 || (most >> 23) == 255;
  const float scale = as_is ? 1.0 : uintBitsToFloat((exponent - 14) << 23);
  const float inverse = as_is ? 1.0 : uintBitsToFloat((254 - (exponent - 14)) << 23);
  for (uint c = 2 * gl_LocalInvocationIndex; c < args.y_stride; c += 2 * gl_WorkGroupSize.x) {
    const float a = c < args.cols ? x.v[c] * inverse : 0.0;
    const float b = c + 1 < args.cols ? x.v[c + 1] * inverse : 0.0;
    y.v[c / 2] = packHalf2x16(vec2(a, b));
  }
  if (gl_LocalInvocationIndex == 0) args.scales.v[row] = scale;
}
