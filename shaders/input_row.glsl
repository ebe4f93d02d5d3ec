// The inputs of a matrix product, as the lanes of weights.glsl take them: four floats at a time, in
// the order of chunks. They lie in shared memory when it holds them (IS_INPUT_SHARED), and are read
// where they are otherwise.
#ifndef MOEPACK_SHADERS_INPUT_ROW_GLSL
#define MOEPACK_SHADERS_INPUT_ROW_GLSL

// Rows of inputs that a work group keeps; whoever includes this may say another number.
#ifndef INPUT_ROWS
#define INPUT_ROWS 1
#endif

layout(constant_id = 8) const uint IS_INPUT_SHARED = 1;
layout(constant_id = 9) const uint HAS_NORM = 0;  // inputs are normed before they are multiplied

// Vector v of chunk c of row r is at v * INPUT_STRIDE + r * CHUNKS + c: lanes with consecutive chunks
// read consecutive vectors. The stride is odd, so that writing by columns spreads over the banks.
const uint INPUT_STRIDE = (INPUT_ROWS * CHUNKS) | 1;
shared vec4 inputs[IS_INPUT_SHARED * (VECTORS * INPUT_STRIDE) + 1];
#if HAS_BIAS || HAS_RAISED
// Of the inputs of each part: their sum, and that of raise_of(i) times each.
shared vec2 input_sums[IS_INPUT_SHARED * (PARTS * INPUT_STRIDE) + 1];
#endif

// The invocation's number in its group, by subgroups.
uint thread_index() { return gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID; }

// Where a row of inputs comes from. What is multiplied with the weights is x * factor * before; the
// products are multiplied by `after`.
struct InputRow {
  HandedF32 x;
  F32 factor;  // of the RMSNorm, where there is one
  float before;
  float after;
};

// Columns [column, column + 4) of x; beyond COLS zero. Rows begin at multiples of 16 bytes when COLS
// is a multiple of 4.
#define READ_VECTOR(NAME, FLOATS, VECTORS)                                            \
  vec4 NAME(FLOATS x, uint column) {                                                  \
    if (COLS % 4 == 0 && COLS % CHUNK == 0) return VECTORS(x).v[column / 4];          \
    vec4 four = vec4(0);                                                              \
    for (uint i = 0; i < 4 && column + i < COLS; ++i) four[i] = x.v[column + i];      \
    return four;                                                                      \
  }
READ_VECTOR(read_vector, F32, F32x4)
READ_VECTOR(read_handed_vector, HandedF32, HandedF32x4)

vec4 read_input(InputRow from, uint column) {
  const vec4 four = read_handed_vector(from.x, column);
  return HAS_NORM != 0 ? four * from.before * read_vector(from.factor, column) : four;
}

// The part of input_sums that columns [column, column + 4) give.
vec2 sums_of(vec4 four, uint column) {
#if HAS_RAISED
  float raised = 0;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    raised = fma(four[i], raise_of((column + i) % PART), raised);
  }
  return vec2((four.x + four.y) + (four.z + four.w), raised);
#else
  return vec2((four.x + four.y) + (four.z + four.w), 0);
#endif
}

// Keeps the vector v of row `row`, counted in order of columns. A part's vectors are with
// consecutive lanes of one call.
void keep_vector(uint row, uint v, vec4 four) {
  const uvec2 place = chunk_place(4 * v);
  const uint at = row * CHUNKS + place.x;
  inputs[place.y / 4 * INPUT_STRIDE + at] = four;
#if HAS_BIAS || HAS_RAISED
  vec2 sums = sums_of(four, 4 * v);
  [[unroll]] for (uint lane = 1; lane < PART / 4; lane *= 2) sums += subgroupShuffleXor(sums, lane);
  if (v % (PART / 4) == 0) input_sums[place.y / PART * INPUT_STRIDE + at] = sums;
#endif
}

// Keeps a whole row. A barrier follows before it is read.
void keep_row(uint row, InputRow from) {
  if (IS_INPUT_SHARED == 0) return;
  for (uint v = thread_index(); v < CHUNKS * VECTORS; v += gl_WorkGroupSize.x) {
    keep_vector(row, v, read_input(from, 4 * v));
  }
}

// The inputs of a part, and their sums where the format needs them.
void read_part(InputRow from, uint row, uint chunk, uint part, out float values[PART],
               out vec2 sums) {
  const uint at = row * CHUNKS + chunk;
  sums = vec2(0);
  [[unroll]] for (uint v = 0; v < PART / 4; ++v) {
    vec4 four;
    if (IS_INPUT_SHARED != 0) {
      four = inputs[(part * (PART / 4) + v) * INPUT_STRIDE + at];
    } else {
      four = read_input(from, part_column(chunk, part) + 4 * v);
      sums += sums_of(four, 4 * v);
    }
    [[unroll]] for (uint i = 0; i < 4; ++i) values[4 * v + i] = four[i];
  }
#if HAS_BIAS || HAS_RAISED
  if (IS_INPUT_SHARED != 0) sums = input_sums[part * INPUT_STRIDE + at];
#endif
}

#endif
