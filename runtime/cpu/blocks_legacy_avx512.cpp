// Blocks of 32 weights with AVX-512.
#if defined(__x86_64__)

#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
#include "runtime/cpu/simd_blocks_avx512.inc"
#include "runtime/cpu/simd_blocks.inc"
#include "runtime/cpu/simd_blocks_legacy.inc"
// clang-format on

}  // namespace

const BlockKernel* avx512_legacy_blocks(QFormatId id) { return find_kernel(kKernels, id); }

}  // namespace moepack

#endif
