// Products of rows of weights with a row of inputs in fixed point: bytes of weights times bytes of
// inputs, four at a time, exact for each part; what scales make of the parts is summed in float32.
// Loops are loops, and there is one copy of what they do. The order of sums depends on COLS and the number of lanes alone.
#ifndef MOEPACK_SHADERS_FIXED_DOTS_GLSL
#define MOEPACK_SHADERS_FIXED_DOTS_GLSL

#include "shaders/fixed_input.glsl"

layout(constant_id = 5) const uint LANES = 32;  // of a team: a power of two
layout(constant_id = 6) const uint ROWS = 1;    // that a team takes together, of each matrix
layout(constant_id = 7) const uint STEPS = 1;   // chunks of each row that are in flight together

// Matrices that a team takes together; whoever includes this may say another number.
#ifndef MATRICES
#define MATRICES 1
#endif
const uint DOTS = ROWS * MATRICES;

#extension GL_EXT_spirv_intrinsics : require
// OpSDotKHR of SPV_KHR_integer_dot_product, of four signed bytes in each word.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019],
                  id = 4450)
int dot_of_bytes(int a, int b, spirv_literal int packed);
int byte_dot(uint a, int b) { return dot_of_bytes(int(a), b, 0); }

// Adds what an exact product is worth.
void add_scaled(vec2 of_weights, vec2 of_inputs, int of_high, int of_low, inout float sum) {
  sum = fma(of_weights.x * of_inputs.x, float(of_high * 256 + of_low), sum);
#if HAS_SUMS
  sum = fma(of_weights.y, of_inputs.y, sum);
#endif
}

// Adds the products of chunks with the kept chunk `at`.
void add_chunk(Chunk w[DOTS], uint at, inout float sums[DOTS]) {
  int of_high[DOTS];
  int of_low[DOTS];
  [[unroll]] for (uint part = 0; part < PARTS; ++part) {
    const ivec4 high = input_high[part * INPUT_STRIDE + at];
    const ivec4 low = input_low[part * INPUT_STRIDE + at];
    [[unroll]] for (uint r = 0; r < DOTS; ++r) {
      if (part % SCALE_PARTS == 0) of_high[r] = of_low[r] = 0;
      [[unroll]] for (uint i = 0; i < 4; ++i) {
        const uint bytes = part_word(w[r], part, i);
        of_high[r] += byte_dot(bytes, high[i]);
        of_low[r] += byte_dot(bytes, low[i]);
      }
      if ((part + 1) % SCALE_PARTS == 0) {
        add_scaled(byte_scale(w[r], part), input_scale[part / SCALE_PARTS * INPUT_STRIDE + at],
                   of_high[r], of_low[r], sums[r]);
      }
    }
  }
}

#endif
