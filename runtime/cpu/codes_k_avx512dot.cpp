// Products in integers of the K-quants and IQ4_XS, by AVX-512 with VNNI.
#if defined(__x86_64__)

#include <limits>

#include "formats/weights/row_order.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/code_rows.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
#include "runtime/cpu/simd_codes_rows.inc"
#include "runtime/cpu/simd_target_avx512dot.inc"
#include "runtime/cpu/simd_codes_avx512.inc"
#include "runtime/cpu/simd_codes.inc"
#include "runtime/cpu/simd_codes_blocks.inc"
#include "runtime/cpu/simd_codes_k.inc"
// clang-format on

}  // namespace

CodeMultiply avx512dot_k_codes(const WeightFormat& format) { return k_codes(format); }

}  // namespace moepack

#endif
