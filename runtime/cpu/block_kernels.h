// Products and decoders of ggml's block formats with SIMD, for the tables of their instruction set.
// A family of formats and an instruction set make one source file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "formats/base/bytes.h"
#include "formats/weights/qformat.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/model/kernels.h"

namespace moepack {

struct BlockKernel {
  QFormatId id{};
  // The product of at most kMaxFusedTokens tokens, straight from the blocks. `scratch` is aligned
  // and has block_scratch_floats(cols) floats.
  void (*multiply)(const MatmulCall& call) = nullptr;
  // Decodes columns [first, first + count) of `row`, both multiples of the block, to the bits that
  // decode_row gives.
  void (*decode)(const QMatrixView& w, std::uint64_t row, std::size_t first, std::size_t count,
                 float* out) = nullptr;
};

// A product in integers (simd_digits.inc).
struct DigitKernel {
  QFormatId id{};
  // The product of at most kMaxFusedTokens tokens. Returns false, and writes nothing, when an input
  // is not finite, or a block of inputs is not zero but all of it is below 2^-60. `scratch` is
  // aligned and has digit_scratch_floats(cols) floats.
  bool (*multiply)(const MatmulCall& call) = nullptr;
};

// The kernel of `id` in a table of kernels, or nullptr.
template <class Kernel, std::size_t Count>
const Kernel* find_kernel(const std::array<Kernel, Count>& kernels, QFormatId id) {
  for (const Kernel& kernel : kernels) {
    if (kernel.id == id) return &kernel;
  }
  return nullptr;
}

#if defined(__x86_64__)
// nullptr where the family has no such format.
const BlockKernel* avx2_legacy_blocks(QFormatId id);
const BlockKernel* avx2_k_blocks(QFormatId id);
const BlockKernel* avx2_grid_blocks(QFormatId id);
const BlockKernel* avx512_legacy_blocks(QFormatId id);
const BlockKernel* avx512_k_blocks(QFormatId id);
const BlockKernel* avx512_grid_blocks(QFormatId id);
const DigitKernel* legacy_digits(QFormatId id);
const DigitKernel* k_digits(QFormatId id);
#endif

}  // namespace moepack
