// Quantizer kernels over tiles: kTileRows rows of a matrix side by side, one row a lane. Rows never
// meet, so every kernel runs the same scalar algorithm in all lanes, and the tables give the same
// bits: multiplications and additions are rounded one by one, in the same order.
//
// A tile of n columns is float[n][kTileRows], any alignment. Rows that pad the last tile of a
// matrix hold zeros and have scale 0; they cost time and change nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace moepack {

constexpr std::size_t kTileRows = 16;
// A block kernel takes at most this many columns, which is a multiple of every group size.
constexpr std::size_t kTileColumns = 128;

// One way to place a group's range: with c the centre, lo = min + (1 - low) * (c - min) and
// hi = max - (1 - high) * (max - c). The centre is the middle of the range or the mean.
struct RangeCandidate {
  float low = 1;
  float high = 1;
  bool around_mean = false;
};

// Chooses scale and bias of one group in every row. For each candidate it takes
//   s = bf16((hi - lo) / max_code), b = bf16(lo),
//   codes q = round((w - b) / s), limited to [0, max_code],
// then up to `refits` times the least-squares s, b of those codes (rounded to bf16) and new codes.
// The pair with the smallest sum of weight * (w - (s q + b))^2 wins, the first of equal ones.
struct RangeSearch {
  const float* w = nullptr;        // [columns][kTileRows]
  const float* weights = nullptr;  // [columns], >= 0; one per column
  std::size_t columns = 0;         // of the group, <= kTileColumns
  float max_code = 0;
  std::span<const RangeCandidate> candidates;  // at least one
  std::uint32_t refits = 0;
};

// Rounds a block of columns from the last to the first. What rounding column j loses is added to
// the columns k < j, weighted by the factor: e_j = (w_j - (s_j q_j + b_j)) / factor[j][j],
// w_k -= e_j * factor[j][k]. (GPTQ, arXiv 2210.17323; see quant/gptq.h for the order.)
struct RoundBlock {
  std::size_t columns = 0;        // <= kTileColumns
  const float* factor = nullptr;  // [columns][columns]; entries k <= j of row j are read
  const float* scale = nullptr;   // [columns][kTileRows]
  const float* bias = nullptr;    // [columns][kTileRows]
  float max_code = 0;
  float* w = nullptr;      // [columns][kTileRows], changed
  float* codes = nullptr;  // [columns][kTileRows], out: whole numbers
  float* error = nullptr;  // [columns][kTileRows], out: e_j
};

// Improves codes, scales and biases of a block under the sum over rows of r H r^T, where r is
// stored - wanted and the other columns stay what they are. `rounds` times, group by group, it
// makes the least-squares change of scale and bias (rounded to bf16, kept only where it helps),
// then sets each code in turn to its best value given all others. Sources: LNQ (arXiv 2505.07004),
// QuantEase (arXiv 2309.01885).
struct RefineBlock {
  std::size_t columns = 0;  // <= kTileColumns, a multiple of group_size
  std::size_t group_size = 0;
  const float* hessian = nullptr;  // [columns][columns]
  float max_code = 0;
  std::uint32_t rounds = 1;
  float* gradient = nullptr;  // [columns][kTileRows]: r H over all columns; kept up to date
  float* codes = nullptr;     // [columns][kTileRows]
  float* scale = nullptr;     // [columns / group_size][kTileRows]
  float* bias = nullptr;      // [columns / group_size][kTileRows]
  float* change = nullptr;    // [columns][kTileRows], out: new stored values minus old ones
  double gain = 0;            // out: by how much the sum over the tile's rows fell
};

struct TileKernels {
  std::string_view name;
  // scale, bias: [kTileRows], out.
  void (*search_range)(const RangeSearch& group, float* scale, float* bias);
  void (*round_block)(const RoundBlock& block);
  void (*refine_block)(RefineBlock& block);
};

const TileKernels& scalar_tile_kernels();
// nullptr where the compiler's target or this processor lacks the instructions.
const TileKernels* avx2_tile_kernels();
const TileKernels* avx512_tile_kernels();
// The fastest kernels that this processor runs.
const TileKernels& tile_kernels();

}  // namespace moepack
