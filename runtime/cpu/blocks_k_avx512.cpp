// K-quants and IQ4_XS with AVX-512.
#if defined(__x86_64__)

#if !defined(__clang__)
// gcc 12 takes the "undefined" operands inside its own intrinsics for mistakes (gcc bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <array>
#include <bit>
#include <cstring>

#include "runtime/cpu/block_kernels.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
#include "runtime/cpu/simd_blocks_avx512.inc"
#include "runtime/cpu/simd_blocks.inc"
#include "runtime/cpu/simd_blocks_k.inc"
// clang-format on

}  // namespace

const BlockKernel* avx512_k_blocks(QFormatId id) { return find_kernel(kKernels, id); }

}  // namespace moepack

#endif
