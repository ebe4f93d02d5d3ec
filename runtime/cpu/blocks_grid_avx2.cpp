// IQ2 and IQ3 with AVX2.
#if defined(__x86_64__)

#include "formats/weights/ggml_grids.h"
#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx2.inc"
#include "runtime/cpu/simd_grid.inc"
#include "runtime/cpu/simd_grid_formats.inc"
// clang-format on

}  // namespace

const BlockKernel* avx2_grid_blocks(QFormatId id) { return find_kernel(kKernels, id); }

}  // namespace moepack

#endif
