// Memory for the inputs of products in integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/code_kernels.h"

namespace moepack {

// Blocks from one token's to the next one's, all digits. An odd number: blocks of the same columns
// of 64 tokens lie in as many sets of a cache of 64 sets or more.
constexpr std::size_t token_stride(std::uint64_t cols, std::size_t digits) {
  return input_blocks(cols, digits) | 1;
}

// Inputs of few tokens, at most so many tokens and values, are quantized by each thread that reads
// them: blocks that one wrote would come to all others line by line, and the next ones it could
// write only when they have given them up (docs/decisions.md, section 98).
constexpr std::size_t kMostOwnTokens = 4;
constexpr std::size_t kMostOwnValues = 8192;
constexpr std::size_t own_blocks(std::size_t digits) {
  return input_blocks(kMostOwnValues, digits) + kMostOwnTokens;
}

// Where inputs are quantized (Activations::input_scratch); empty: products take floats.
struct InputScratch {
  std::span<InputBlock> blocks;       // [tokens, token_stride(cols of the widest matrix)]
  std::span<const InputBlock*> rows;  // [tokens]
  std::size_t digits = 0;             // of every input
  // [threads, own_blocks(digits)]: each thread's own; none: they share `blocks`, however few.
  std::span<InputBlock> own = {};
};

}  // namespace moepack
