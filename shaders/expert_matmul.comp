// One projection of experts for the pairs of tiles: down, or gate or up where their formats differ.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/expert_matmul_args.h"

layout(local_size_x_id = 0) in;

#include "shaders/matmul_tile.glsl"

layout(push_constant, scalar) uniform Push { ExpertMatmulArgs args; };

layout(constant_id = 7) const uint ADDS_BIAS = 0;
#include "shaders/expert_tile.glsl"

uint first_output() { return gl_WorkGroupID.x * kTileRows; }

RowRef tile_row(uint m) {
  return row_ref(record + args.codes, record + args.scales, record + args.biases,
                 min(first_output() + m, args.outputs - 1));
}

uint64_t input_of(uint n) {
  return address_of_row(uint64_t(args.x), pair_of(n) / args.pairs_per_input, args.x_stride, kInputBytes);
}

// Nothing is added where there is none: to add zero would change the sign of a negative zero.
float bias_of(uint output_row) {
  return ADDS_BIAS != 0 ? args.bias.v[tile.expert * args.bias_stride + output_row] : -0.0;
}

void take_sums(uint n, uint m, vec4 low, vec4 high) {
  const uint pair = pair_of(n);
#ifdef COOPERATIVE_MATRIX
  const float scale = args.x_scales.v[pair / args.pairs_per_input];
  low *= scale;
  high *= scale;
#endif
  F32 y = F32(address_of_row(uint64_t(args.y), pair, args.outputs, 4));
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint output_row = first_output() + m + i;
    if (output_row < args.outputs) y.v[output_row] = low[i] + bias_of(output_row);
    const uint other_row = output_row + kTileRows / 2;
    if (other_row < args.outputs) y.v[other_row] = high[i] + bias_of(other_row);
  }
}

void main() {
  if (find_tile()) multiply_tile(args.tables, tile.count, (args.x_stride | COLS) % 4 == 0);
}
