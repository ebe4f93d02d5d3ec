// The gate and up projections of experts with SwiGLU between them, for the pairs of tiles. A tile's
// low rows are the gate's, its high rows the up projection's of the same outputs.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/gate_up_matmul_args.h"
#include "shaders/matmul_tile.glsl"
#include "shaders/matmul_decode.glsl"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { GateUpMatmulArgs args; };

#include "shaders/expert_tile.glsl"

const uint kOutputs = kTileRows / 2;
Matrix matrix;  // of the thread's tile row

uint first_output() { return gl_WorkGroupID.y * kOutputs; }

void matrix_run(uint tile_row, uint col, out float w[kRun]) {
  const uint row = min(first_output() + tile_row % kOutputs, args.width - 1);
  decode_run(matrix, row, col, args.hidden, w);
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
  if (!find_tile()) return;
  if (gl_LocalInvocationIndex % kTileRows < kOutputs) {
    matrix = record_matrix(args.gate_codes, args.gate_scales, args.gate_biases);
  } else {
    matrix = record_matrix(args.up_codes, args.up_scales, args.up_biases);
  }
  const uint row = pair_of(gl_LocalInvocationIndex % kTileTokens) / args.slots;
  multiply_tile(TileInput(address_of_row(uint64_t(args.x), row, args.x_stride, kInputBytes)),
                args.hidden, tile.count, (args.x_stride | args.hidden) % 4 == 0);
}
