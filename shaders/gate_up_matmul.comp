// The gate and up projections of experts with SwiGLU between them, for the pairs of tiles. A tile's
// low rows are the gate's, its high rows the up projection's of the same outputs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/gate_up_matmul_args.h"

layout(local_size_x_id = 0) in;

#include "shaders/matmul_tile.glsl"

layout(push_constant, scalar) uniform Push { GateUpMatmulArgs args; };

#include "shaders/expert_tile.glsl"

const uint kOutputs = kTileRows / 2;

uint first_output() { return gl_WorkGroupID.x * kOutputs; }

RowRef tile_row(uint m) {
  const uint row = min(first_output() + m % kOutputs, args.width - 1);
  if (m < kOutputs) {
    return row_ref(record + args.gate_codes, record + args.gate_scales, record + args.gate_biases,
                   row);
  }
  return row_ref(record + args.up_codes, record + args.up_scales, record + args.up_biases, row);
}

uint64_t input_of(uint n) {
  return address_of_row(uint64_t(args.x), pair_of(n) / args.slots, args.x_stride, kInputBytes);
}

void take_sums(uint n, uint m, vec4 low, vec4 high) {
  const uint pair = pair_of(n);
#ifdef COOPERATIVE_MATRIX
  const float scale = args.x_scales.v[pair / args.slots];
  low *= scale;
  high *= scale;
#endif
  const vec4 values = low / (1 + exp(-low)) * high;
  F32 act = F32(address_of_row(uint64_t(args.act), pair, args.width, 4));
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (first_output() + m + i < args.width) act.v[first_output() + m + i] = values[i];
  }
}

void main() {
  if (find_tile()) multiply_tile(args.tables, tile.count, (args.x_stride | COLS) % 4 == 0);
}
