// The gated delta rule over the tokens of a slice in order, for some columns of S of one V head. No
// thread waits for one of another group of eight lanes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "shaders/common.glsl"
#include "shaders/mixer_types.glsl"
#include "shaders/reduce.glsl"
#include "shaders/elementary.glsl"
#include "shaders/delta.glsl"
#include "shaders/delta_args.h"

layout(local_size_x_id = 0) in;
layout(push_constant, scalar) uniform Push { DeltaRecurArgs args; };

void load_keys(uint row, uint key_head, out vec4 q[kVectors], out vec4 k[kVectors]) {
  const uint width = kKeyPad / 4;
  const uint at = (row * 2 * args.key_heads + key_head) * width + thread_id() % 8;
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    q[r] = args.keys.v[at + 8 * r];
    k[r] = args.keys.v[at + args.key_heads * width + 8 * r];
  }
}

void main() {
  const uint head = gl_WorkGroupID.y;
  const BatchSlice slice = args.slices.v[gl_WorkGroupID.z];
  if (slice.live == 0 || slice.count == 0) return;
  const uint key_head = key_head_of(head, args.key_heads, args.value_heads, args.is_tiled != 0);
  F32x4 state = args.states.v[gl_WorkGroupID.z];
  const bool is_new = slice.position == 0;
  const uint column = gl_WorkGroupID.x * (gl_WorkGroupSize.x / 8) + thread_id() / 8;
  const bool is_valid = column < VALUE_DIM;
  const uint value_at = head * VALUE_DIM + (is_valid ? column : 0);
  const uint at = value_at * (kKeyPad / 4) + thread_id() % 8;
  vec4 s[kVectors];
  [[unroll]] for (uint r = 0; r < kVectors; ++r) s[r] = is_new ? vec4(0.0) : state.v[at + 8 * r];

  // What the next token needs is loaded while one is computed.
  vec4 next_q[kVectors];
  vec4 next_k[kVectors];
  load_keys(slice.first, key_head, next_q, next_k);
  float next_v = args.values.v[slice.first * args.value_heads * VALUE_DIM + value_at];
  for (uint t = 0; t < slice.count; ++t) {
    const uint row = slice.first + t;
    vec4 q[kVectors];
    vec4 k[kVectors];
    [[unroll]] for (uint r = 0; r < kVectors; ++r) {
      q[r] = next_q[r];
      k[r] = next_k[r];
    }
    const float v = next_v;
    const float decay = args.factors.v[(row * args.value_heads + head) * 2];
    const float beta = args.factors.v[(row * args.value_heads + head) * 2 + 1];
    const uint next = slice.first + min(t + 1, slice.count - 1);
    load_keys(next, key_head, next_q, next_k);
    next_v = args.values.v[next * args.value_heads * VALUE_DIM + value_at];
    const float kq = lanes8_sum(dot_part(k, q));
    const float y = delta_column(s, q, k, kq, v, decay, beta);
    if (is_valid && thread_id() % 8 == 0) {
      args.mixed.v[row * args.value_heads * VALUE_DIM + value_at] = y;
    }
  }
  if (is_valid) {
    [[unroll]] for (uint r = 0; r < kVectors; ++r) state.v[at + 8 * r] = s[r];
  }
  if (gl_WorkGroupID.x != 0) return;
  ConvInputs inputs = ConvInputs(args.qkv, args.qkv_stride, slice.first, F32(state),
                                       window_of(head, args.value_heads), is_new);
  for (uint i = thread_id(); i < kSpan; i += gl_WorkGroupSize.x) {
    move_window(inputs, slice.count, i, channel_of(i, head, key_head, args.key_heads));
  }
}
