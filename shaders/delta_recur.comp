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

// Tokens whose inputs are loaded ahead: a token takes less time than memory.
const uint kAhead = 3;

BatchSlice slice;
uint head;
uint key_head;
uint value_at;  // of this thread's column in a row of values
// By slot of a token loaded ahead.
vec4 next_q[kAhead * kVectors];
vec4 next_k[kAhead * kVectors];
float next_v[kAhead];
float next_decay[kAhead];
float next_beta[kAhead];

// Token t of the slice, or its last.
void load_token(uint slot, uint t) {
  const uint row = slice.first + min(t, slice.count - 1);
  const uint width = kKeyPad / 4;
  const uint at = (row * 2 * args.key_heads + key_head) * width + thread_id() % 8;
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    next_q[slot * kVectors + r] = args.keys.v[at + 8 * r];
    next_k[slot * kVectors + r] = args.keys.v[at + args.key_heads * width + 8 * r];
  }
  next_v[slot] = args.values.v[row * args.value_heads * VALUE_DIM + value_at];
  next_decay[slot] = args.factors.v[(row * args.value_heads + head) * 2];
  next_beta[slot] = args.factors.v[(row * args.value_heads + head) * 2 + 1];
}

// Token t, whose inputs lie in `slot`.
float recur_token(inout vec4 s[kVectors], uint slot, uint t) {
  vec4 q[kVectors];
  vec4 k[kVectors];
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    q[r] = next_q[slot * kVectors + r];
    k[r] = next_k[slot * kVectors + r];
  }
  const float v = next_v[slot];
  const float decay = next_decay[slot];
  const float beta = next_beta[slot];
  load_token(slot, t + kAhead);
  return delta_column(s, q, k, lanes8_sum(dot_part(k, q)), v, decay, beta);
}

void main() {
  slice = args.slices.v[gl_WorkGroupID.z];
  if (slice.live == 0 || slice.count == 0) return;
  head = gl_WorkGroupID.y;
  key_head = key_head_of(head, args.key_heads, args.value_heads, args.is_tiled != 0);
  F32x4 state = args.states.v[gl_WorkGroupID.z];
  const bool is_new = slice.position == 0;
  const uint column = gl_WorkGroupID.x * (gl_WorkGroupSize.x / 8) + thread_id() / 8;
  const bool is_valid = column < VALUE_DIM;
  value_at = head * VALUE_DIM + (is_valid ? column : 0);
  const uint at = value_at * (kKeyPad / 4) + thread_id() % 8;
  vec4 s[kVectors];
  [[unroll]] for (uint r = 0; r < kVectors; ++r) s[r] = is_new ? vec4(0.0) : state.v[at + 8 * r];
  [[unroll]] for (uint slot = 0; slot < kAhead; ++slot) load_token(slot, slot);
  for (uint first = 0; first < slice.count; first += kAhead) {
    [[unroll]] for (uint slot = 0; slot < kAhead; ++slot) {
      const uint t = first + slot;
      if (t < slice.count) {
        const float y = recur_token(s, slot, t);
        if (is_valid && thread_id() % 8 == 0) {
          args.mixed.v[(slice.first + t) * args.value_heads * VALUE_DIM + value_at] = y;
        }
      }
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
