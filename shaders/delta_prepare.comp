// Convolution, norms of q and k, decay and beta of every token at once.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/mixer_types.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/delta.glsl"
#include "shaders/delta_norm.glsl"
#include "shaders/delta_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { DeltaPrepareArgs args; };

uint channels;
ConvInputs inputs;
int token;  // of the slice's part of the batch

// Query head h < key_heads or key head h - key_heads, by eight lanes.
void prepare_key(uint row, uint h, bool is_valid) {
  const uint key_head = h % args.key_heads;
  const bool is_query = h < args.key_heads;
  const uint head =
      value_head_of(key_head, args.key_heads, args.value_heads, args.is_tiled != 0);
  inputs.window = window_of(head, args.value_heads);
  vec4 x[kVectors];
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    [[unroll]] for (uint c = 0; c < 4; ++c) {
      const uint i = 32 * r + 4 * (thread_id() % 8) + c;
      const uint at = (is_query ? 0 : KEY_DIM) + i;
      x[r][c] = i < KEY_DIM && is_valid
                    ? convolve(inputs, args.conv, channels, token, at,
                               channel_of(at, head, key_head, args.key_heads))
                    : 0.0;
    }
  }
  normalise(x, is_query ? query_scale() : 1.0);
  if (!is_valid) return;
  const uint out_at = (row * 2 * args.key_heads + h) * (kKeyPad / 4) + thread_id() % 8;
  [[unroll]] for (uint r = 0; r < kVectors; ++r) args.keys.v[out_at + 8 * r] = x[r];
}

void prepare_value(uint row, uint i) {
  const uint head = i / VALUE_DIM;
  const uint at = 2 * KEY_DIM + i % VALUE_DIM;
  inputs.window = window_of(head, args.value_heads);
  args.values.v[row * args.value_heads * VALUE_DIM + i] =
      convolve(inputs, args.conv, channels, token, at, channel_of(at, head, 0, args.key_heads));
}

void prepare_factors(uint row, uint head) {
  const uint at = (row * args.value_heads + head) * 2;
  args.factors.v[at] = decay_of(args.decay_rate.v[head], args.dt_bias.v[head],
                                args.a.v[row * args.ab_stride + head]);
  args.factors.v[at + 1] = sigmoid(args.b.v[row * args.ab_stride + head]);
}

void main() {
  const uint row = gl_WorkGroupID.x;
  const BatchRow place = args.rows.v[row];
  if (place.live == 0) return;
  const BatchSlice slice = args.slices.v[place.slice];
  channels = 2 * args.key_heads * KEY_DIM + args.value_heads * VALUE_DIM;
  inputs = ConvInputs(args.qkv, args.qkv_stride, slice.first, F32(args.states.v[place.slice]), 0,
                      slice.position == 0);
  token = int(row - slice.first);
  const uint groups = gl_WorkGroupSize.x / 8;
  for (uint h = 0; h < 2 * args.key_heads; h += groups) {
    const uint mine = h + thread_id() / 8;
    prepare_key(row, mine, mine < 2 * args.key_heads);
  }
  for (uint i = thread_id(); i < args.value_heads * VALUE_DIM; i += gl_WorkGroupSize.x) {
    prepare_value(row, i);
  }
  for (uint i = thread_id(); i < args.value_heads; i += gl_WorkGroupSize.x) {
    prepare_factors(row, i);
  }
}
