// Panels of codes times many tokens in tiles: AMX, whose registers are matrices of up to 16 rows of
// 64 bytes. A tile of inputs (16 tokens, one digit of a group of columns) times a tile of codes
// (the group of 16 rows of weights, as a panel has them) gives the integer sums of a group; they
// become floats in the order that codes_reference.cpp defines, so that the bits are those of the
// other kernels. Part of level amx alone: nobody else may call what is declared here. Source: Intel
// SDM volume 1, section 18; volume 2, TDPBSSD and TDPBSUD.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/model/code_kernels.h"

namespace moepack {

constexpr std::size_t kTileRows = 16;   // rows of a tile
constexpr std::size_t kTileDigits = 2;  // of the inputs that tiles are multiplied with

// Where sums of a panel go on and where they are left, [tokens, rows of the panel]. Strides in
// floats from one token to the next. `from` may be `to`; neither need be aligned.
struct PanelSums {
  const float* from;  // null at the first column: zeros
  std::size_t from_stride;
  float* to;
  std::size_t to_stride;
};

// Inputs of tokens at equal distances.
struct TileInputs {
  const InputBlock* first = nullptr;  // of the first token
  std::size_t stride = 0;             // blocks from one token to the next
};

// A panel of 16 rows of weights, [groups, 8, 16] words of four codes, times tokens. Formats without
// biases have their zero subtracted: such codes are signed.
struct TilePanel {
  const void* codes;
  const float* scales;  // [groups, parts, 16]
  const float* biases;  // the same; null: none
  std::size_t groups;   // at least 1
  std::size_t parts;    // scales of a row in a group of 32 columns, 1 or 2
};

// Tokens that share a tile where `tokens` >= 1 are multiplied.
constexpr std::size_t tokens_of_tile(std::size_t tokens) {
  const std::size_t tiles = (tokens + kTileRows - 1) / kTileRows;
  return (tokens + tiles - 1) / tiles;
}

// Gives this thread's tiles the shapes that panels of `parts` take with `tokens` tokens.
void shape_tiles(std::size_t tokens, std::size_t parts);
// Behind the last product: the system need not save tiles any more.
void release_tiles();

// Products of the panel's 16 rows. x: of the panel's first columns, kTileDigits digits. tokens,
// panel.parts: what this thread's tiles were shaped for.
void multiply_in_tiles(const TilePanel& panel, const TileInputs& x, std::size_t tokens,
                       const PanelSums& sums);

}  // namespace moepack
