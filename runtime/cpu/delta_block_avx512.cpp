// The block form of the gated delta rule with AVX-512.
#if defined(__x86_64__)

#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"
#include "runtime/cpu/simd_intrinsics.h"
#include "runtime/model/delta_block.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
#include "runtime/cpu/simd_exponential.inc"
#include "runtime/cpu/simd_delta_block.inc"
// clang-format on

}  // namespace

const DeltaBlockKernels& avx512_delta_block() { return kDeltaBlockKernels; }

}  // namespace moepack

#endif
