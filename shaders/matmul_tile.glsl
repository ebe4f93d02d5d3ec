// A tile of a product of many rows: 64 rows of a matrix times up to 64 tokens, by one work group of
// 128 threads. Weights are decoded once per tile into shared memory. Two forms with one interface:
// plain float32, and (COOPERATIVE_MATRIX) 16-bit floats on cooperative matrices with float32 sums.
//
// The program that includes this defines
//   matrix_run: kRun weights of one tile row; 0 for columns from `cols` on;
//   take_sums: what becomes of the sums of token `n` (< count) for tile rows m … m + 3 (`low`) and
//              m + 32 … m + 35 (`high`); m < 32.
// and calls multiply_tile. A sum's order depends on the number of columns alone.
#ifndef MOEPACK_SHADERS_MATMUL_TILE_GLSL
#define MOEPACK_SHADERS_MATMUL_TILE_GLSL

const uint kTileRows = 64;
const uint kTileTokens = 64;
const uint kTileCols = 32;   // columns between two barriers
const uint kTileThreads = 128;
const uint kRun = 16;        // consecutive columns that a thread decodes at once
const uint kThreadCols = kTileCols * kTileRows / kTileThreads;

void matrix_run(uint tile_row, uint col, out float w[kRun]);
void take_sums(uint n, uint m, vec4 low, vec4 high);

#ifdef COOPERATIVE_MATRIX
#include "shaders/matmul_tile_cooperative.glsl"
#else
#include "shaders/matmul_tile_plain.glsl"
#endif

#endif
