// A tile of a product of many rows: 64 rows of a matrix times up to 64 tokens, by one work group of
// 128 threads. Weights are decoded once per tile into shared memory. Two forms with one interface:
// plain float32, and (COOPERATIVE_MATRIX) 16-bit floats on cooperative matrices with float32 sums.
//
// The program that includes this, with COLS the number of columns, defines
//   tile_row:  row m of the tile, any valid row for those behind the matrix;
//   input_of:  address of the input of token n < count;
//   take_sums: what becomes of the sums of token `n` (< count) for tile rows m … m + 3 (`low`) and
//              m + 32 … m + 35 (`high`); m < 32.
// and calls multiply_tile. Columns are summed in an order that depends on the format and their number
// alone.
#ifndef MOEPACK_SHADERS_MATMUL_TILE_GLSL
#define MOEPACK_SHADERS_MATMUL_TILE_GLSL

#include "shaders/weights.glsl"

const uint kTileRows = 64;
const uint kTileTokens = 64;
const uint kTileThreads = 128;

RowRef tile_row(uint m);
uint64_t input_of(uint n);
void take_sums(uint n, uint m, vec4 low, vec4 high);

// Columns between two barriers, in the order in which chunks hold them.
#ifdef COOPERATIVE_MATRIX
const uint kTileCols = CHUNK > 64 ? CHUNK : 64;
#else
const uint kTileCols = CHUNK > 32 ? CHUNK : 32;
#endif

#ifdef COOPERATIVE_MATRIX
#include "shaders/matmul_tile_cooperative.glsl"
#else
#include "shaders/matmul_tile_plain.glsl"
#endif

// Neighbouring threads take neighbouring chunks of a row, and vectors of a token's input, so that they
// read neighbouring bytes.
const uint kChunks = kTileCols / CHUNK;  // of a row in a step
const uint kThreadChunks = (kTileRows * kChunks + kTileThreads - 1) / kTileThreads;
const uint kVectors = kTileCols / kVector;  // of a token in a step
const uint kThreadVectors = kTileTokens * kVectors / kTileThreads;

uvec2 row_and_chunk(uint i) {
  const uint at = gl_LocalInvocationIndex + i * kTileThreads;
  return uvec2(at / kChunks, at % kChunks);
}
uint token_of(uint i) { return (gl_LocalInvocationIndex + i * kTileThreads) / kVectors; }
uint vector_of_thread() { return gl_LocalInvocationIndex % kVectors; }

// What a thread stages in a step.
Chunk next_chunks[kThreadChunks];
InputVector next_vectors[kThreadVectors];

// Column of the thread's vectors in a step; chunks order the columns.
uint vector_column(uint step_index) {
  const uint place = step_index * kTileCols + vector_of_thread() * kVector;
  return part_column(place / CHUNK, place % CHUNK / PART) + place % PART;
}

// Loads what the thread will stage for a step; nothing waits for it yet.
void fetch(RowRef rows[kThreadChunks], uint64_t inputs[kThreadVectors], uint step_index,
           uint count, bool whole_vectors) {
  [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
    const uvec2 at = row_and_chunk(i);
    if (at.x < kTileRows) {
      next_chunks[i] = load_chunk(rows[i], min(step_index * kChunks + at.y, CHUNKS - 1));
    }
  }
  const uint column = vector_column(step_index);
  [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
    if (token_of(i) < count) next_vectors[i] = load_vector(inputs[i], column, whole_vectors);
  }
}

void stage_chunk(Chunk bytes, uint m, uint chunk, bool is_inside) {
  [[unroll]] for (uint part = 0; part < PARTS; ++part) {
    float w[PART];
    part_codes(bytes, part, w);
    const vec2 scale = part_scale(bytes, part);
    [[unroll]] for (uint i = 0; i < PART; ++i) {
#if HAS_SCALE
      w[i] *= scale.x;
#endif
#if HAS_BIAS
      w[i] += scale.y;
#endif
      if (CHUNKS % kChunks != 0 && !is_inside) w[i] = 0;
    }
    put_weights(m, chunk * CHUNK + part * PART, w);
  }
}

void stage(uint step_index, uint count) {
  [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
    const uvec2 at = row_and_chunk(i);
    if (at.x < kTileRows) {
      stage_chunk(next_chunks[i], at.x, at.y, step_index * kChunks + at.y < CHUNKS);
    }
  }
  [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
    if (token_of(i) < count) put_vector(token_of(i), vector_of_thread(), next_vectors[i]);
  }
}

// tables: what weights.glsl fills its tables from. whole_vectors: inputs of all tokens start at
// multiples of 16 bytes, and COLS is a multiple of 4.
void multiply_tile(Halves tables, uint count, bool whole_vectors) {
#if HAS_TABLES
  fill_tables(tables, gl_LocalInvocationIndex, kTileThreads);
#endif
  RowRef rows[kThreadChunks];
  [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
    rows[i] = tile_row(min(row_and_chunk(i).x, kTileRows - 1));
  }
  uint64_t inputs[kThreadVectors];
  [[unroll]] for (uint i = 0; i < kThreadVectors; ++i) {
    inputs[i] = input_of(min(token_of(i), count - 1));
  }
  clear_sums();
  const uint steps = (CHUNKS + kChunks - 1) / kChunks;
  fetch(rows, inputs, 0, count, whole_vectors);
  for (uint step_index = 0; step_index < steps; ++step_index) {
    barrier();
    stage(step_index, count);
    barrier();
    if (step_index + 1 < steps) fetch(rows, inputs, step_index + 1, count, whole_vectors);
    add_products(count);
  }
  give_sums(count);
}

#endif
