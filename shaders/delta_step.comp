// One V head of one slice: all of GatedDeltaNet between the projections, token by token, with S in
// registers.
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
layout(constant_id = 4) const uint COLUMNS = 1;
layout(push_constant, scalar) uniform Push { DeltaStepArgs args; };

shared vec4 mixed_inputs[2 * kVectors * 8];  // q, then k, as convolved
shared float value_inputs[VALUE_DIM];
shared float outputs[VALUE_DIM];

// Results that a thread norms and gates: with 8 * VALUE_DIM / COLUMNS threads.
const uint kResults = (COLUMNS + 7) / 8;

uint head;
uint key_head;
ConvInputs inputs;
vec4 s[COLUMNS * kVectors];
float decay_rate;
float dt_bias;
float norm_factors[kResults];
// Of the token that is computed. They are loaded first, so that nothing waits for memory between
// barriers.
float token_a;
float token_b;
float token_z[kResults];

uint columns_at_once() { return gl_WorkGroupSize.x / 8; }

void load_state(F32x4 state) {
  [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
    const uint column = thread_id() / 8 + n * columns_at_once();
    const uint at = (head * VALUE_DIM + column) * (kKeyPad / 4) + thread_id() % 8;
    [[unroll]] for (uint r = 0; r < kVectors; ++r) {
      s[n * kVectors + r] =
          inputs.is_new || column >= VALUE_DIM ? vec4(0.0) : state.v[at + 8 * r];
    }
  }
}

void store_state(F32x4 state) {
  [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
    const uint column = thread_id() / 8 + n * columns_at_once();
    const uint at = (head * VALUE_DIM + column) * (kKeyPad / 4) + thread_id() % 8;
    if (column >= VALUE_DIM) continue;
    [[unroll]] for (uint r = 0; r < kVectors; ++r) state.v[at + 8 * r] = s[n * kVectors + r];
  }
}

void load_weights() {
  decay_rate = args.decay_rate.v[head];
  dt_bias = args.dt_bias.v[head];
  [[unroll]] for (uint n = 0; n < kResults; ++n) {
    const uint i = thread_id() + n * gl_WorkGroupSize.x;
    norm_factors[n] = i < VALUE_DIM ? args.norm.v[i] : 0.0;
  }
}

void load_token(uint row) {
  token_a = args.a.v[row * args.ab_stride + head];
  token_b = args.b.v[row * args.ab_stride + head];
  [[unroll]] for (uint n = 0; n < kResults; ++n) {
    const uint i = thread_id() + n * gl_WorkGroupSize.x;
    token_z[n] = i < VALUE_DIM ? args.z.v[row * args.z_stride + head * VALUE_DIM + i] : 0.0;
  }
}

// q, k and v of token t into shared memory; q and k padded with zeros.
void convolve_token(uint t) {
  const uint channels = 2 * args.key_heads * KEY_DIM + args.value_heads * VALUE_DIM;
  for (uint i = thread_id(); i < 2 * kKeyPad + VALUE_DIM; i += gl_WorkGroupSize.x) {
    const bool is_value = i >= 2 * kKeyPad;
    const uint part = is_value ? 2 : i / kKeyPad;
    const uint in_part = i - part * kKeyPad;
    float y = 0.0;
    if (is_value || in_part < KEY_DIM) {
      const uint at = part * KEY_DIM + in_part;
      y = convolve(inputs, args.conv, channels, int(t), at,
                   channel_of(at, head, key_head, args.key_heads));
    }
    if (is_value) {
      value_inputs[in_part] = y;
    } else {
      mixed_inputs[i / 4][i % 4] = y;
    }
  }
}

// The windows are moved by the threads that read them in convolve_token.
void move_windows(uint count) {
  for (uint i = thread_id(); i < 2 * kKeyPad + VALUE_DIM; i += gl_WorkGroupSize.x) {
    const uint part = i >= 2 * kKeyPad ? 2 : i / kKeyPad;
    const uint in_part = i - part * kKeyPad;
    if (part < 2 && in_part >= KEY_DIM) continue;
    const uint at = part * KEY_DIM + in_part;
    move_window(inputs, count, at, channel_of(at, head, key_head, args.key_heads));
  }
}

void recur_token() {
  vec4 q[kVectors];
  vec4 k[kVectors];
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    q[r] = mixed_inputs[8 * r + thread_id() % 8];
    k[r] = mixed_inputs[8 * (kVectors + r) + thread_id() % 8];
  }
  normalise(q, query_scale());
  normalise(k, 1.0);
  const float kq = lanes8_sum(dot_part(k, q));
  const float decay = decay_of(decay_rate, dt_bias, token_a);
  const float beta = sigmoid(token_b);
  [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
    const uint column = thread_id() / 8 + n * columns_at_once();
    vec4 part[kVectors];
    [[unroll]] for (uint r = 0; r < kVectors; ++r) part[r] = s[n * kVectors + r];
    const float v = column < VALUE_DIM ? value_inputs[column] : 0.0;
    const float y = delta_column(part, q, k, kq, v, decay, beta);
    [[unroll]] for (uint r = 0; r < kVectors; ++r) s[n * kVectors + r] = part[r];
    if (column < VALUE_DIM && thread_id() % 8 == 0) outputs[column] = y;
  }
}

void gate_token(uint row) {
  float sum = 0.0;
  for (uint i = thread_id() % 8; i < VALUE_DIM; i += 8) sum = add_square(sum, outputs[i]);
  DeltaNorm norm = norm_of(lanes8_sum(sum), args.eps);
  if (norm.is_wide) {
    sum = 0.0;
    for (uint i = thread_id() % 8; i < VALUE_DIM; i += 8) {
      sum = add_square(sum, outputs[i] * kShrink);
    }
    norm.scale = wide_scale(lanes8_sum(sum));
  }
  [[unroll]] for (uint n = 0; n < kResults; ++n) {
    const uint i = thread_id() + n * gl_WorkGroupSize.x;
    if (i >= VALUE_DIM) break;
    args.mixed.v[(row * args.value_heads + head) * VALUE_DIM + i] =
        gated(norm, outputs[i], norm_factors[n], token_z[n]);
  }
}

void main() {
  head = gl_WorkGroupID.x;
  const BatchSlice slice = args.slices.v[gl_WorkGroupID.y];
  F32x4 state = args.states.v[gl_WorkGroupID.y];
  if (slice.live == 0 || slice.count == 0) return;
  key_head = key_head_of(head, args.key_heads, args.value_heads, args.is_tiled != 0);
  inputs = ConvInputs(args.qkv, args.qkv_stride, slice.first, F32(state),
                      window_of(head, args.value_heads), slice.position == 0);
  load_weights();
  load_state(state);
  for (uint t = 0; t < slice.count; ++t) {
    load_token(slice.first + t);
    convolve_token(t);
    barrier();
    recur_token();
    barrier();
    gate_token(slice.first + t);
  }
  move_windows(slice.count);
  store_state(state);
}
