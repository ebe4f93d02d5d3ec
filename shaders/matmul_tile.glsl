// A tile of a product of many rows: kTileRows rows of a matrix times up to kTileTokens tokens, by one
// work group. Weights are decoded once per tile into shared memory. Two forms with one interface:
// plain float32, and (COOPERATIVE_MATRIX) 16-bit floats on cooperative matrices with float32 sums.
//
// The program that includes this, with COLS the number of columns, defines
//   tile_row:  row m of the tile, any valid row for those behind the matrix;
//   input_of:  address of the input of token n < count;
//   take_sums: what becomes of the sums of token `n` (< count) for tile rows m … m + 3 (`low`) and
//              those half a tile further (`high`).
// and calls multiply_tile(tables, count, whole_vectors). tables: what weights.glsl fills its tables
// from; whole_vectors: inputs of all tokens start at multiples of 16 bytes, and COLS is a multiple of
// 4. Columns are summed in an order that depends on the format and their number alone, in the plain
// form on the shape of its tiles too.
//
// Specialization constants: 0 threads of a work group, 5 kTileTokens, 6 kTileRows
// (runtime/vulkan/weight_kernels.h chooses them).
#ifndef MOEPACK_SHADERS_MATMUL_TILE_GLSL
#define MOEPACK_SHADERS_MATMUL_TILE_GLSL

#include "shaders/weights.glsl"

RowRef tile_row(uint m);
uint64_t input_of(uint n);
void take_sums(uint n, uint m, vec4 low, vec4 high);

#ifdef COOPERATIVE_MATRIX
#include "shaders/matmul_tile_cooperative.glsl"
#else
#include "shaders/matmul_tile_plain.glsl"
#endif

#endif
