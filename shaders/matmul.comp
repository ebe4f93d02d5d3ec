// y[t][r] (+)= sum over c of W[r][c] x[t][c] for the many rows of a prompt.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/addresses.glsl"
#include "shaders/matmul_args.h"

layout(local_size_x_id = 0) in;

#include "shaders/matmul_tile.glsl"

layout(push_constant, scalar) uniform Push { MatmulArgs args; };

uint first_output() { return gl_WorkGroupID.x * kTileRows; }
uint first_token() { return gl_WorkGroupID.y * kTileTokens; }

RowRef tile_row(uint m) {
  return row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                 min(first_output() + m, args.outputs - 1));
}

uint64_t input_of(uint n) {
  return address_of_row(uint64_t(args.x), first_token() + n, args.x_stride, kInputBytes);
}

void put(uint token, uint output_row, vec4 values) {
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (output_row + i >= args.outputs) return;
    const uint at = token * args.y_stride + output_row + i;
    args.y.v[at] = args.add != 0 ? args.y.v[at] + values[i] : values[i];
  }
}

void take_sums(uint n, uint m, vec4 low, vec4 high) {
  const uint token = first_token() + n;
#ifdef COOPERATIVE_MATRIX
  const float scale = args.x_scales.v[token];
  low *= scale;
  high *= scale;
#endif
  put(token, first_output() + m, low);
  put(token, first_output() + kTileRows / 2 + m, high);
}

void main() {
  multiply_tile(args.tables, min(args.rows - first_token(), kTileTokens),
                (args.x_stride | COLS) % 4 == 0);
}
