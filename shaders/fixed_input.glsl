// The inputs of a product as 16-bit fixed-point numbers, for products of integers: an input is
// scale * (256 * high + low), high and low a signed byte each, one scale for 32 columns, the largest
// magnitude of them / 32512. They lie in shared memory, in the order in which lanes take weights.
#ifndef MOEPACK_SHADERS_FIXED_INPUT_GLSL
#define MOEPACK_SHADERS_FIXED_INPUT_GLSL

#include "shaders/fixed_codes.glsl"

// Rows of inputs that a work group keeps; whoever includes this may say another number.
#ifndef INPUT_ROWS
#define INPUT_ROWS 1
#endif

layout(constant_id = 9) const uint HAS_NORM = 0;  // inputs are normed before they are multiplied

// Part p of chunk c of row r is at p * INPUT_STRIDE + r * CHUNKS + c: lanes with consecutive chunks
// read consecutive vectors. Bytes are in the order of part_word().
const uint INPUT_STRIDE = INPUT_ROWS * CHUNKS;
shared ivec4 input_high[PARTS * INPUT_STRIDE];
shared ivec4 input_low[PARTS * INPUT_STRIDE];
// Of SCALE_PARTS parts the scale, and that times the sum of their numbers.
shared vec2 input_scale[PARTS / SCALE_PARTS * INPUT_STRIDE];
shared float subgroup_values[128];

const float kMostFixed = 32512.0;  // 127 * 256
// Below this the inverse of a scale is beyond float32; such inputs count as zero.
const float kLeastInput = 1e-30;
// Squares beyond float32's range are formed of the inputs times this.
const float kShrink = 8.470329472543003e-22;  // 2^-70

// The invocation's number in its group, by subgroups.
uint thread_index() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// The four inputs of word v, counted in order of columns; v % 4 is the word of its part.
#if IS_IN_ORDER
#define LOAD_WORD(NAME, FLOATS, VECTORS) \
  vec4 NAME(FLOATS x, uint v) { return VECTORS(x).v[v]; }
#else
#define LOAD_WORD(NAME, FLOATS, VECTORS)                       \
  vec4 NAME(FLOATS x, uint v) {                                \
    vec4 four;                                                 \
    [[unroll]] for (uint i = 0; i < 4; ++i) {                  \
      four[i] = x.v[v / 4 * 16 + column_of(v % 4, i)];         \
    }                                                          \
    return four;                                               \
  }
#endif
LOAD_WORD(read_word, F32, F32x4)
LOAD_WORD(load_handed_word, HandedF32, HandedF32x4)
vec4 read_handed_word(HandedF32 x, uint v) {
  vec4 four;
  TAKE_HANDED(four, load_handed_word(x, v));
  return four;
}

// Keeps word v of row `row`, times `weight`; all threads of eight words call it together.
void keep_word(uint row, uint v, vec4 four, float weight) {
  const uvec4 bits = floatBitsToUint(four) & 0x7fffffffu;
  // As integers: what is no number is above all that are.
  uint top = max(max(bits.x, bits.y), max(bits.z, bits.w));
  [[unroll]] for (uint lane = 1; lane < 8; lane *= 2) top = max(top, subgroupShuffleXor(top, lane));
  const float most = uintBitsToFloat(top);
  const float inverse = most > kLeastInput ? kMostFixed / most : 0.0;
  // Rounded by adding 1.5 * 2^23: the lower bits of the sum are the number's. Of the pairs' bytes the
  // lower halves count.
  const ivec4 q = floatBitsToInt(fma(four, vec4(inverse), vec4(12582912.0)));
  const ivec4 up = q + 128;
  const uvec2 place = chunk_place(v / 4 * 16);
  const uint at = place.y / 16 * INPUT_STRIDE + row * CHUNKS + place.x;
  input_low[at][v % 4] =
      (((q.x & 255) | (q.y << 8)) & 0xFFFF) | (((q.z & 255) | (q.w << 8)) << 16);
  input_high[at][v % 4] =
      ((((up.x >> 8) & 255) | (up.y & 0xFF00)) & 0xFFFF) | (((up.z >> 8) & 255) | (up.w & 0xFF00)) << 16;
  vec2 scale = vec2(most * (weight / kMostFixed), 0);
#if HAS_SUMS
  int sum = (q.x + q.y) + (q.z + q.w) - 4 * 0x4B400000;
  sum += subgroupShuffleXor(sum, 1);
  sum += subgroupShuffleXor(sum, 2);
  if (SCALE_PARTS == 2) sum += subgroupShuffleXor(sum, 4);
  scale.y = scale.x * float(sum);
#endif
  if (v % (4 * SCALE_PARTS) == 0) {
    input_scale[place.y / 16 / SCALE_PARTS * INPUT_STRIDE + row * CHUNKS + place.x] = scale;
  }
}

// Over the work group, at all threads; the order depends on its size and the device alone.
float group_sum(float value) {
  const float part = subgroupAdd(value);
  if (subgroupElect()) subgroup_values[gl_SubgroupID] = part;
  barrier();
  float sum = 0;
  // As many turns in all lanes, which meet again in the sum over them.
  [[dont_unroll]] for (uint first = 0; first < gl_NumSubgroups; first += gl_SubgroupSize) {
    const uint i = first + gl_SubgroupInvocationID;
    sum += i < gl_NumSubgroups ? subgroup_values[i] : 0.0;
  }
  return subgroupAdd(sum);
}

// Keeps a row, with a barrier, and says what products with it are to be multiplied by.
float keep_row(HandedF32 x, F32 factor, float eps) {
  float before = 1;
  float sum = 0;
  [[dont_unroll]] for (;;) {
    float squares = 0;
    // As many turns in all lanes, as in group_sum().
    [[dont_unroll]] for (uint first = 0; first < COLS / 4; first += gl_WorkGroupSize.x) {
      const uint v = first + thread_index();
      if (v >= COLS / 4) continue;
      vec4 four = read_handed_word(x, v);
      if (HAS_NORM != 0) {
        four *= before;
        squares += dot(four, four);
        four *= read_word(factor, v);
      }
      keep_word(0, v, four, 1.0);
    }
    if (HAS_NORM == 0) {
      barrier();
      return 1.0;
    }
    sum = group_sum(squares);
    if (before != 1.0 || floatBitsToUint(sum) != 0x7f800000u) break;
    before = kShrink;
    eps = 0;
    barrier();
  }
  return 1.0 / sqrt(sum / float(COLS) + eps);
}

#endif
