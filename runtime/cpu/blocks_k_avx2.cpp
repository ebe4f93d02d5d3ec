// K-quants and IQ4_XS with AVX2.
#if defined(__x86_64__)

#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx2.inc"
#include "runtime/cpu/simd_blocks_avx2.inc"
#include "runtime/cpu/simd_blocks.inc"
#include "runtime/cpu/simd_blocks_k.inc"
// clang-format on

}  // namespace

const BlockKernel* avx2_k_blocks(QFormatId id) { return find_kernel(kKernels, id); }

}  // namespace moepack

#endif
