// The gate and up projections of experts with SwiGLU between them, for the pairs of tiles. A tile's
// low rows are the gate's, its high rows the up projection's of the same outputs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/gate_up_matmul_args.h"

layout(local_size_x_id = 0) in;

#include "shaders/matmul_tile.glsl"

layout(push_constant, scalar) uniform Push { GateUpMatmulArgs args; };

layout(constant_id = 7) const uint ACTIVATION = 0;
layout(constant_id = 8) const float ACTIVATION_LIMIT = 0;
layout(constant_id = 9) const uint ADDS_BIAS = 0;  // of gate and up
#include "shaders/expert_tile.glsl"
#include "shaders/expert_activation.h"

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
  F32 act = F32(address_of_row(uint64_t(args.act), pair, args.width, 4));
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const uint output_row = first_output() + m + i;
    if (output_row >= args.width) continue;
    if (ADDS_BIAS != 0) {
      const uint at = tile.expert * 2 * args.width + output_row;
      low[i] += args.bias.v[at];
      high[i] += args.bias.v[at + args.width];
    }
    act.v[output_row] = activate(low[i], high[i]);
  }
}

void main() {
  if (find_tile()) multiply_tile(args.tables, tile.count, (args.x_stride | COLS) % 4 == 0);
}
