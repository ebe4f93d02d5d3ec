// What the kernels of GatedDeltaNet share (delta_args.h), so that both ways give the same bits.
#ifndef MOEPACK_SHADERS_DELTA_GLSL
#define MOEPACK_SHADERS_DELTA_GLSL

layout(constant_id = 1) const uint KEY_DIM = 128;
layout(constant_id = 2) const uint VALUE_DIM = 128;
layout(constant_id = 3) const uint TAPS = 4;

const uint kKeyPad = (KEY_DIM + 31) / 32 * 32;
// Vectors of four rows that a lane has of a column: lane p has rows 32 r + 4 p … 32 r + 4 p + 3.
const uint kVectors = kKeyPad / 32;
const uint kWindow = TAPS - 1;
const uint kSpan = 2 * KEY_DIM + VALUE_DIM;  // channels of a V head
// Inside the square root of the l2 norm of q and k.
const float kL2Epsilon = 1e-6;

// Where the raw inputs of a V head's convolution lie.
struct ConvInputs {
  F32 qkv;
  uint stride;
  uint first;   // row
  F32 state;
  uint window;  // of the head, in the state
  bool is_new;  // the sequence begins with this batch
};

uint key_head_of(uint head, uint key_heads, uint value_heads, bool is_tiled) {
  return is_tiled ? head % key_heads : head / (value_heads / key_heads);
}

// A V head whose window holds the inputs of `key_head`.
uint value_head_of(uint key_head, uint key_heads, uint value_heads, bool is_tiled) {
  return is_tiled ? key_head : key_head * (value_heads / key_heads);
}

// Where the window of `head` begins in the state.
uint window_of(uint head, uint value_heads) {
  return value_heads * VALUE_DIM * kKeyPad + head * kWindow * kSpan;
}

// Channel of the projection behind channel `at` of a V head's span.
uint channel_of(uint at, uint head, uint key_head, uint key_heads) {
  if (at < KEY_DIM) return key_head * KEY_DIM + at;
  if (at < 2 * KEY_DIM) return (key_heads + key_head) * KEY_DIM + (at - KEY_DIM);
  return 2 * key_heads * KEY_DIM + head * VALUE_DIM + (at - 2 * KEY_DIM);
}

// Raw input of token `t` of the batch; those before the batch have t < 0.
float raw_input(ConvInputs inputs, int t, uint at, uint channel) {
  if (t >= 0) return inputs.qkv.v[(inputs.first + uint(t)) * inputs.stride + channel];
  return inputs.is_new ? 0.0 : inputs.state.v[inputs.window + uint(t + int(kWindow)) * kSpan + at];
}

// Causal depthwise convolution and silu.
float convolve(ConvInputs inputs, F32 weights, uint channels, int t, uint at, uint channel) {
  precise float sum = 0.0;
  [[unroll]] for (uint j = 0; j < TAPS; ++j) {
    sum = fma(weights.v[j * channels + channel],
              raw_input(inputs, t - int(kWindow) + int(j), at, channel), sum);
  }
  precise float y = silu(sum);
  return y;
}

// The window behind `count` more tokens; all of it is loaded before any is stored. The thread that has
// a channel here is the only one that touches it.
void move_window(ConvInputs inputs, uint count, uint at, uint channel) {
  float moved[kWindow + 1];  // TAPS may be 1
  [[unroll]] for (uint j = 0; j < kWindow; ++j) {
    moved[j] = raw_input(inputs, int(count + j) - int(kWindow), at, channel);
  }
  [[unroll]] for (uint j = 0; j < kWindow; ++j) {
    inputs.state.v[inputs.window + j * kSpan + at] = moved[j];
  }
}

// Four chains of sums side by side: a token waits for them.
float dot_part(vec4 a[kVectors], vec4 b[kVectors]) {
  precise vec4 sums = vec4(0.0);
  [[unroll]] for (uint r = 0; r < kVectors; ++r) sums = fma(a[r], b[r], sums);
  precise float sum = (sums.x + sums.y) + (sums.z + sums.w);
  return sum;
}

// Of the squares of eight lanes' vectors: those of eight values side by side, then of 32, then of all,
// so that a thread for each value can form the same sum.
float square_sum(vec4 x[kVectors]) {
  precise float sum = 0.0;
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    precise vec4 y = x[r] * x[r];
    precise float part = (y.x + y.y) + (y.z + y.w);
    sum = sum + lanes8_sum(part);
  }
  return sum;
}

// What brings a vector to the length `factor`; the second for one that was shrunk because its sum of
// squares is not finite.
float unit_scale(float sum, float factor) {
  precise float scale = 1.0 / sqrt(sum + kL2Epsilon) * factor;
  return scale;
}
float shrunk_scale(float sum, float factor) { return factor / sqrt(sum); }

void normalise(inout vec4 x[kVectors], float factor) {
  const float sum = square_sum(x);
  float scale = unit_scale(sum, factor);
  if (!is_finite(sum)) {
    [[unroll]] for (uint r = 0; r < kVectors; ++r) x[r] *= kShrink;
    scale = shrunk_scale(square_sum(x), factor);
  }
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    precise vec4 y = x[r] * scale;
    x[r] = y;
  }
}

float decay_of(float rate, float bias, float a) { return exact_exp(rate * softplus(a + bias)); }

// One token for one column of S, eight lanes together; the result in each of them. What S gives for
// q follows from the state before the update: S'^T q = (decay S)^T q + (k q) delta.
float delta_column(inout vec4 s[kVectors], vec4 q[kVectors], vec4 k[kVectors], float kq, float v,
                   float decay, float beta) {
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    precise vec4 y = s[r] * decay;
    s[r] = y;
  }
  const float seen = lanes8_sum(dot_part(s, k));
  const float answer = lanes8_sum(dot_part(s, q));
  precise float delta = beta * (v - seen);
  [[unroll]] for (uint r = 0; r < kVectors; ++r) {
    s[r].x = fma(k[r].x, delta, s[r].x);
    s[r].y = fma(k[r].y, delta, s[r].y);
    s[r].z = fma(k[r].z, delta, s[r].z);
    s[r].w = fma(k[r].w, delta, s[r].w);
  }
  precise float out_value = fma(kq, delta, answer);
  return out_value;
}

#endif
