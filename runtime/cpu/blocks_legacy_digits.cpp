// Blocks of 32 weights in integers, with AVX-512 VNNI.
#if defined(__x86_64__)

#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
#include "runtime/cpu/simd_target_avx512vnni.inc"
#include "runtime/cpu/simd_digits.inc"
#include "runtime/cpu/simd_digits_legacy.inc"
// clang-format on

}  // namespace

const DigitKernel* legacy_digits(QFormatId id) { return find_kernel(kKernels, id); }

}  // namespace moepack

#endif
