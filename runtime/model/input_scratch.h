// Memory for the inputs of products in integers.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/model/code_kernels.h"

namespace moepack {

// Where inputs are quantized (Activations::input_scratch); empty: products take floats.
struct InputScratch {
  std::span<InputBlock> blocks;       // of as many tokens of the widest matrix as are computed
  std::span<const InputBlock*> rows;  // [tokens]
  std::size_t digits = 0;             // of every input
};

}  // namespace moepack
