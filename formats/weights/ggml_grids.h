// The grids of ggml's I-quants: which combinations of digits a code can stand for. The subsets were
// picked empirically by their author and follow no rule, so they are tables. Source: ggml (MIT
// licence; the names there stand with each); the numbers were recovered by decoding crafted blocks
// with it, tests/golden/ggml/codebooks.json holds them as data.
//
// An entry packs the digits of one row, the first weight in the lowest bits: eight digits of two
// bits (IQ1, IQ2), four of three bits (IQ3). Entries ascend, so a grid is a subset of codes and an
// index is the rank in it.
#pragma once

#include <array>
#include <cstdint>

namespace moepack {

// Digits 0, 1, 2 stand for 8, 25, 43.
extern const std::array<std::uint16_t, 256> kIq2XxsGrid;  // iq2xxs_grid
extern const std::array<std::uint16_t, 512> kIq2XsGrid;   // iq2xs_grid
extern const std::array<std::uint16_t, 1024> kIq2SGrid;   // iq2s_grid
// Digits 0 to 7 stand for 4, 12, 20, 28, 36, 44, 52, 62.
extern const std::array<std::uint16_t, 256> kIq3XxsGrid;  // iq3xxs_grid
// Digit d stands for 2 d + 1.
extern const std::array<std::uint16_t, 512> kIq3SGrid;  // iq3s_grid
// Digits 0, 1, 2 stand for -1, 0, 1. IQ1_S and IQ1_M.
extern const std::array<std::uint16_t, 2048> kIq1Grid;  // iq1s_grid

}  // namespace moepack
