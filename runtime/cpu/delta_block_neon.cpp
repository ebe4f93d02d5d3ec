// The block form of the gated delta rule with Advanced SIMD of AArch64.
#if defined(__aarch64__)

#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"
#include "runtime/cpu/simd_intrinsics_neon.h"
#include "runtime/model/delta_block.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_neon.inc"
#include "runtime/cpu/simd_exponential.inc"
#include "runtime/cpu/simd_delta_block.inc"
// clang-format on

}  // namespace

const DeltaBlockKernels& neon_delta_block() { return kDeltaBlockKernels; }

}  // namespace moepack

#endif
