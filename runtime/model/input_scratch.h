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

// Where inputs are quantized (Activations::input_scratch); empty: products take floats.
struct InputScratch {
  std::span<InputBlock> blocks;       // [tokens, token_stride(cols of the widest matrix)]
  std::span<const InputBlock*> rows;  // [tokens]
  std::size_t digits = 0;             // of every input
};

}  // namespace moepack
