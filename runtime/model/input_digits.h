// Inputs of products in integers with one digit or two. The first digit is the blocks of
// code_kernels.h; a second one is the blocks of what the first leaves:
//   r = fma(-scale, code, x)      for each input, then r quantized as x was.
// So |x - first - second| <= scale / 508, with scale the block's largest |x| / 127: two digits have
// at least 16 bits of the largest input of a block. A product with two digits is the float32 sum of
// the products with each, whose bits code_kernels.h defines: no kernel has to know of it, and a
// result depends on nothing beside it there either.
//
// The blocks of a token: [digits, input_blocks(cols)].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/model/code_kernels.h"

namespace moepack {

constexpr std::size_t kMostDigits = 2;

// Blocks of a token of `cols` inputs.
constexpr std::size_t digit_blocks(std::size_t digits, std::uint64_t cols) {
  return digits * input_blocks(cols);
}

// Inputs [begin, end) of a token of `cols`; begin is a multiple of kInputGroup, end one too. x: at
// input `begin`. blocks: of the token.
void quantize_digits(const CodeKernels& kernels, std::size_t digits, const float* x,
                     std::size_t begin, std::size_t end, std::size_t cols, InputBlock* blocks);

// CodeKernels::multiply with x[t] the blocks of token t. begin is a multiple of kCodeRows.
void multiply_digits(const CodeKernels& kernels, std::size_t digits, const QMatrixView& w,
                     const InputBlock* const* x, std::size_t tokens, std::uint64_t begin,
                     std::uint64_t end, float* y, std::size_t y_stride, std::span<float> scratch);

// Where inputs are quantized (Activations::input_scratch); empty: products take floats.
struct InputScratch {
  std::span<InputBlock> blocks;       // of as many tokens of the widest matrix as are computed
  std::span<const InputBlock*> rows;  // [tokens]
  std::size_t digits = 0;             // of every input
};

}  // namespace moepack
