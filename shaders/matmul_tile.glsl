// A tile of a product of many rows: 64 rows of a matrix times up to 64 tokens, by one work group of
// 128 threads. Weights are decoded once per tile into shared memory. Two forms with one interface:
// plain float32, and (COOPERATIVE_MATRIX) 16-bit floats on cooperative matrices with float32 sums.
//
// The program that includes this, with COLS the number of columns, defines
//   tile_row:  row 0 … 63 of the tile, any valid row for those behind the matrix;
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
void take_sums(uint n, uint m, vec4 low, vec4 high);

// Columns between two barriers, in the order in which chunks hold them.
#ifdef COOPERATIVE_MATRIX
const uint kTileCols = CHUNK > 64 ? CHUNK : 64;
#else
const uint kTileCols = CHUNK > 32 ? CHUNK : 32;
#endif

// Threads of one row, or of one token, take every second chunk or run of columns of a step.
const uint kPeers = kTileThreads / kTileRows;
const uint kChunks = kTileCols / CHUNK;  // of a row in a step
const uint kThreadChunks = (kChunks + kPeers - 1) / kPeers;
const uint kRuns = kTileCols / PART;      // of a token in a step
const uint kThreadRuns = kRuns / kPeers;

// Column of the first input of run `run` of a step.
uint run_column(uint step_index, uint run) {
  const uint place = step_index * kTileCols + run * PART;
  return part_column(place / CHUNK, place % CHUNK / PART) + place % PART;
}

#ifdef COOPERATIVE_MATRIX
#include "shaders/matmul_tile_cooperative.glsl"
#else
#include "shaders/matmul_tile_plain.glsl"
#endif

struct Fetched {
  Chunk chunks[kThreadChunks];
  TileRun runs[kThreadRuns];
};

// What the thread will stage for a step; nothing is waited for.
void fetch(RowRef row, uint64_t input_at, bool has_input, uint peer, uint step_index,
           bool whole_vectors, inout Fetched next) {
  [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
    const uint chunk = i * kPeers + peer;
    if (chunk < kChunks) {
      next.chunks[i] = load_chunk(row, min(step_index * kChunks + chunk, CHUNKS - 1));
    }
  }
  if (has_input) {
    [[unroll]] for (uint i = 0; i < kThreadRuns; ++i) {
      next.runs[i] = load_run(input_at, run_column(step_index, i * kPeers + peer), whole_vectors);
    }
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
      if (!is_inside) w[i] = 0;
    }
    put_weights(m, chunk * CHUNK + part * PART, w);
  }
}

void stage(Fetched fetched, uint place, bool has_input, uint peer, uint step_index) {
  [[unroll]] for (uint i = 0; i < kThreadChunks; ++i) {
    const uint chunk = i * kPeers + peer;
    if (chunk < kChunks) {
      stage_chunk(fetched.chunks[i], place, chunk, step_index * kChunks + chunk < CHUNKS);
    }
  }
  if (has_input) {
    [[unroll]] for (uint i = 0; i < kThreadRuns; ++i) {
      put_run(place, (i * kPeers + peer) * PART, fetched.runs[i]);
    }
  }
}

// tables: what weights.glsl fills its tables from. input_at: address of the input of token gl_LocalInvocationIndex % 64, read where that is below
// `count`. whole_vectors: inputs of all tokens start at multiples of 16 bytes, and COLS is a multiple
// of 4.
void multiply_tile(Halves tables, uint64_t input_at, uint count, bool whole_vectors) {
  const uint place = gl_LocalInvocationIndex % kTileRows;
  const uint peer = gl_LocalInvocationIndex / kTileRows;
  const bool has_input = place < count;
  const RowRef row = tile_row(place);
  const uint steps = (CHUNKS + kChunks - 1) / kChunks;
#if HAS_TABLES
  fill_tables(tables, gl_LocalInvocationIndex, kTileThreads);
#endif
  TileSums sums;
  clear(sums);
  Fetched next;
  fetch(row, input_at, has_input, peer, 0, whole_vectors, next);
  for (uint step_index = 0; step_index < steps; ++step_index) {
    barrier();
    stage(next, place, has_input, peer, step_index);
    barrier();
    if (step_index + 1 < steps) {
      fetch(row, input_at, has_input, peer, step_index + 1, whole_vectors, next);
    }
    add_products(count, sums);
  }
  give_sums(count, sums);
}

#endif
