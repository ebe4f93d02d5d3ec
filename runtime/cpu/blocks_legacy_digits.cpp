// Blocks of 32 weights in integers, with AVX-512 VNNI.
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
#include "runtime/cpu/simd_digits_target.inc"
#include "runtime/cpu/simd_digits.inc"
#include "runtime/cpu/simd_digits_legacy.inc"
// clang-format on

}  // namespace

const DigitKernel* legacy_digits(QFormatId id) { return find_kernel(kKernels, id); }

}  // namespace moepack

#endif
