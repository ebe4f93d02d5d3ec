// What products of each head with its own rows share (latent_args.h): rows of weights, decoded into
// shared memory some at a time for the tokens of a work group.
#ifndef MOEPACK_SHADERS_LATENT_HEAD_GLSL
#define MOEPACK_SHADERS_LATENT_HEAD_GLSL

#include "shaders/weights.glsl"
#include "shaders/latent_args.h"

layout(constant_id = 5) const uint TOKENS = 4;
layout(push_constant, scalar) uniform Push { LatentHeadArgs args; };

const uint kThreads = 128;
const uint kFours = TOKENS / 4;
const uint kStaged = 2048;  // weights
shared float staged[kStaged];

uint thread_id() { return gl_LocalInvocationIndex; }
uint head_of_group() { return args.first_head + gl_WorkGroupID.y; }
uint first_token() { return gl_WorkGroupID.z * TOKENS; }

// Of the head's rows that are taken.
RowRef head_row(uint r) {
  return row_ref(uint64_t(args.codes), uint64_t(args.scales), uint64_t(args.biases),
                 gl_WorkGroupID.y * args.head_rows + args.first_row + min(r, args.rows - 1));
}

// The column of place `i` among the weights of a row in the order in which chunks hold them.
uint column_of(uint i) {
  return part_column(i / CHUNK, i % CHUNK / PART) + i % PART;
}

// Weights of a chunk, zero beyond the row or where there is no such row.
float[CHUNK] decoded(Chunk bytes, bool is_inside) {
  float w[CHUNK];
  [[unroll]] for (uint part = 0; part < PARTS; ++part) {
    float code[PART];
    part_codes(bytes, part, code);
    const vec2 scale = part_scale(bytes, part);
    [[unroll]] for (uint i = 0; i < PART; ++i) {
      precise float value = code[i];
#if HAS_SCALE
      value = value * scale.x;
#if HAS_BIAS
      value = value + scale.y;
#endif
#endif
      w[part * PART + i] = is_inside ? value : 0.0;
    }
  }
  return w;
}

void put(uint token, uint i, float y) {
  const uint at = (first_token() + token) * args.y_token + head_of_group() * args.y_head + i;
  if (first_token() + token < args.tokens) args.y.v[at] = y;
}
float input_at(uint token, uint i) {
  const uint t = first_token() + token;
  return t < args.tokens ? args.x.v[t * args.x_token + head_of_group() * args.x_head + i] : 0.0;
}

#endif
