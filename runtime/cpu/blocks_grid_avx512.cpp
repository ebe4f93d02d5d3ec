// IQ2 and IQ3 with AVX-512VL, in eight lanes; docs/decisions.md, 28, has the figures.
#if defined(__x86_64__)

#include "formats/weights/ggml_grids.h"
#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/simd_intrinsics.h"

#define MOE_SIMD __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#define MOE_SIMD_INLINE MOE_SIMD MOE_INLINE
#define MOE_HAS_TERNARY

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx2.inc"
#include "runtime/cpu/simd_grid.inc"
#include "runtime/cpu/simd_grid_formats.inc"
// clang-format on

}  // namespace

const BlockKernel* avx512_grid_blocks(QFormatId id) { return find_kernel(kKernels, id); }

}  // namespace moepack

#endif
