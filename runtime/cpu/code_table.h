// What the tables of products in integers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/cpu/code_kernels.h"

namespace moepack {

// CodeKernels::multiply with the kernel of the format. The last rows of a matrix, fewer than
// kCodeRows, are computed one by one, to the same bits.
void multiply_with(CodeMultiply kernel, const QMatrixView& w, const InputBlock* const* x,
                   std::size_t tokens, std::uint64_t row_begin, std::uint64_t row_end, float* y,
                   std::size_t y_stride, std::span<float> scratch);

}  // namespace moepack
