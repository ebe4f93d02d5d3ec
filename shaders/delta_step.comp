// One V head of one slice: all of GatedDeltaNet between the projections, token by token, with S in
// registers. A token is computed once by each of many work groups, so what counts is how many
// instructions a thread has: what is the same for all threads is computed by few of them.
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
#define STAGE_ARGS DeltaStepArgs
#include "shaders/stage_order.glsl"

// The inputs of a token: q and k, padded with zeros, and v. A thread has some of them, at the threads'
// distance.
const uint kInputs = 2 * kKeyPad + VALUE_DIM;
const uint kTurns = (kInputs * COLUMNS + 8 * VALUE_DIM - 1) / (8 * VALUE_DIM);
const uint kKeep = kWindow + 1;  // TAPS may be 1
// Results that a thread norms and gates: with 8 * VALUE_DIM / COLUMNS threads.
const uint kResults = (COLUMNS + 7) / 8;

shared vec4 mixed_inputs[2 * kVectors * 8];  // q, then k, normed
// Of each eight values of q, then of k: sums of squares; then the same of the values times kShrink.
shared vec4 square_sums[4 * kVectors];
shared float value_inputs[VALUE_DIM];
shared float outputs[VALUE_DIM];
shared vec2 token_factors;  // decay, beta

uint head;
BatchSlice slice;
vec4 s[COLUMNS * kVectors];
// Of this thread's inputs: place in the span, kSpan for padding; channel of the projections; the
// convolution's weights; the last raw inputs, oldest first.
uint spans[kTurns];
uint channels_of[kTurns];
float taps[kTurns * TAPS];
float past[kTurns * kKeep];
// Of this thread's results. Loaded first, so that nothing waits for memory between barriers.
float norm_factors[kResults];
float token_z[kResults];

uint columns_at_once() { return gl_WorkGroupSize.x / 8; }
bool has_factors() { return thread_id() == gl_WorkGroupSize.x - 1; }

void load_state(F32x4 state) {
  [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
    const uint column = thread_id() / 8 + n * columns_at_once();
    const uint at = (head * VALUE_DIM + column) * (kKeyPad / 4) + thread_id() % 8;
    [[unroll]] for (uint r = 0; r < kVectors; ++r) {
      s[n * kVectors + r] =
          slice.position == 0 || column >= VALUE_DIM ? vec4(0.0) : state.v[at + 8 * r];
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

uint span_of(uint i) {
  const uint part = min(i / kKeyPad, 2u);
  const uint in_part = i - part * kKeyPad;
  return in_part < (part == 2 ? VALUE_DIM : KEY_DIM) ? part * KEY_DIM + in_part : kSpan;
}

void load_taps() {
  const uint key_head = key_head_of(head, args.key_heads, args.value_heads, args.is_tiled != 0);
  const uint channels = 2 * args.key_heads * KEY_DIM + args.value_heads * VALUE_DIM;
  [[unroll]] for (uint n = 0; n < kTurns; ++n) {
    spans[n] = span_of(thread_id() + n * gl_WorkGroupSize.x);
    channels_of[n] = channel_of(spans[n], head, key_head, args.key_heads);
    [[unroll]] for (uint j = 0; j < TAPS; ++j) {
      taps[n * TAPS + j] = spans[n] < kSpan ? args.conv.v[j * channels + channels_of[n]] : 0.0;
    }
  }
}

void load_windows(F32 state) {
  const uint window = window_of(head, args.value_heads);
  [[unroll]] for (uint n = 0; n < kTurns; ++n) {
    [[unroll]] for (uint j = 0; j < kWindow; ++j) {
      past[n * kKeep + j] = slice.position != 0 && spans[n] < kSpan
                                ? state.v[window + j * kSpan + spans[n]]
                                : 0.0;
    }
  }
}

void store_windows(F32 state) {
  const uint window = window_of(head, args.value_heads);
  [[unroll]] for (uint n = 0; n < kTurns; ++n) {
    if (spans[n] >= kSpan) continue;
    [[unroll]] for (uint j = 0; j < kWindow; ++j) {
      state.v[window + j * kSpan + spans[n]] = past[n * kKeep + j];
    }
  }
}

float load_raw(uint n, uint row) {
  return spans[n] < kSpan ? args.qkv.v[row * args.qkv_stride + channels_of[n]] : 0.0;
}

float load_gate(uint n, uint row) {
  const uint i = thread_id() + n * gl_WorkGroupSize.x;
  return i < VALUE_DIM ? args.z.v[row * args.z_stride + head * VALUE_DIM + i] : 0.0;
}

// This thread's first input and gate, a and b: on their way together.
vec4 load_token(uint row) {
  const uint at = row * args.ab_stride + head;
  return vec4(load_raw(0, row), load_gate(0, row), args.a.v[at], args.b.v[at]);
}

// This thread's input after convolution and silu; the window moves on.
float convolve_next(uint n, float raw) {
  past[n * kKeep + kWindow] = raw;
  precise float sum = 0.0;
  [[unroll]] for (uint j = 0; j < TAPS; ++j) {
    sum = fma(taps[n * TAPS + j], past[n * kKeep + j], sum);
  }
  [[unroll]] for (uint j = 0; j < kWindow; ++j) past[n * kKeep + j] = past[n * kKeep + j + 1];
  precise float y = silu(sum);
  return y;
}

void load_norm() {
  [[unroll]] for (uint n = 0; n < kResults; ++n) {
    const uint i = thread_id() + n * gl_WorkGroupSize.x;
    norm_factors[n] = i < VALUE_DIM ? args.norm.v[i] : 0.0;
  }
}

// The sum of squares of a query or key, in the order of square_sum().
float total_of(uint first) {
  precise float total = 0.0;
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    const vec4 quad = square_sums[first + r];
    total = total + ((quad.x + quad.y) + (quad.z + quad.w));
  }
  return total;
}

// q, k and v of the token into shared memory; q and k at unit length.
void prepare_token(uint row) {
  vec4 token;
  TAKE_HANDED(token, load_token(row));
  token_z[0] = token.y;
  [[unroll]] for (uint n = 1; n < kResults; ++n) TAKE_HANDED(token_z[n], load_gate(n, row));
  float inputs[kTurns];
  [[unroll]] for (uint n = 0; n < kTurns; ++n) {
    const uint i = thread_id() + n * gl_WorkGroupSize.x;
    float raw = token.x;
    if (n > 0) TAKE_HANDED(raw, load_raw(n, row));
    const float y = convolve_next(n, raw);
    inputs[n] = y;
    precise float square = y * y;
    const float sum = lanes8_sum(square);
    precise float shrunk = y * kShrink;
    precise float shrunk_square = shrunk * shrunk;
    const float shrunk_sum = lanes8_sum(shrunk_square);
    if (i >= 2 * kKeyPad) {
      if (i < kInputs) value_inputs[i - 2 * kKeyPad] = y;
    } else if (i % 8 == 0) {
      square_sums[i / 32][i / 8 % 4] = sum;
      square_sums[2 * kVectors + i / 32][i / 8 % 4] = shrunk_sum;
    }
  }
  if (has_factors()) {
    token_factors = vec2(decay_of(args.decay_rate.v[head], args.dt_bias.v[head], token.z),
                         sigmoid(token.w));
  }
  barrier();
  [[unroll]] for (uint n = 0; n < kTurns; ++n) {
    const uint i = thread_id() + n * gl_WorkGroupSize.x;
    if (i >= 2 * kKeyPad) break;
    const uint first = i / kKeyPad * kVectors;
    const float factor = i < kKeyPad ? query_scale() : 1.0;
    const float total = total_of(first);
    float x = inputs[n];
    float scale = unit_scale(total, factor);
    if (!is_finite(total)) {
      x *= kShrink;
      scale = shrunk_scale(total_of(2 * kVectors + first), factor);
    }
    precise float y = x * scale;
    mixed_inputs[i / 4][i % 4] = y;
  }
  barrier();
}

void recur_token() {
  vec4 q[kVectors];
  vec4 k[kVectors];
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    q[r] = mixed_inputs[8 * r + thread_id() % 8];
    k[r] = mixed_inputs[8 * (kVectors + r) + thread_id() % 8];
  }
  const float kq = lanes8_sum(dot_part(k, q));
  [[unroll]] for (uint n = 0; n < COLUMNS; ++n) {
    const uint column = thread_id() / 8 + n * columns_at_once();
    vec4 part[kVectors];
    [[unroll]] for (uint r = 0; r < kVectors; ++r) part[r] = s[n * kVectors + r];
    const float v = column < VALUE_DIM ? value_inputs[column] : 0.0;
    const float y = delta_column(part, q, k, kq, v, token_factors.x, token_factors.y);
    [[unroll]] for (uint r = 0; r < kVectors; ++r) s[n * kVectors + r] = part[r];
    if (column < VALUE_DIM && thread_id() % 8 == 0) outputs[column] = y;
  }
}

void gate_token(uint row) {
  [[unroll]] for (uint n = 0; n < kResults; ++n) {
    const uint i = thread_id() + n * gl_WorkGroupSize.x;
    if (i / 8 * 8 >= VALUE_DIM) break;  // whole eights go on
    float sum = 0.0;
    for (uint j = thread_id() % 8; j < VALUE_DIM; j += 8) sum = add_square(sum, outputs[j]);
    DeltaNorm norm = norm_of(lanes8_sum(sum), args.eps);
    if (norm.is_wide) {
      sum = 0.0;
      [[dont_unroll]] for (uint j = thread_id() % 8; j < VALUE_DIM; j += 8) {
        sum = add_square(sum, outputs[j] * kShrink);
      }
      norm.scale = wide_scale(lanes8_sum(sum));
    }
    if (i >= VALUE_DIM) break;
    args.mixed.v[(row * args.value_heads + head) * VALUE_DIM + i] =
        gated(norm, outputs[i], norm_factors[n], token_z[n]);
  }
}

void run_stage() {
  head = gl_WorkGroupID.x;
  load_taps();
  load_norm();
  slice = args.slices.v[gl_WorkGroupID.y];
  F32x4 state = args.states.v[gl_WorkGroupID.y];
  if (slice.live == 0 || slice.count == 0) return;
  load_windows(F32(state));
  load_state(state);
  for (uint t = 0; t < slice.count; ++t) {
    prepare_token(slice.first + t);
    recur_token();
    if (t + 1 == slice.count) store_state(state);  // on its way while the rest is computed
    barrier();
    gate_token(slice.first + t);
  }
  store_windows(F32(state));
}
