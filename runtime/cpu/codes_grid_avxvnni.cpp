// Products in integers of IQ2 and IQ3, at level avxvnni.
#if defined(__x86_64__)

#include <limits>

#include "formats/weights/ggml_grids.h"
#include "formats/weights/row_order.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/code_rows.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avxvnni.inc"
#include "runtime/cpu/simd_codes_rows.inc"
#include "runtime/cpu/simd_codes_avx2.inc"
#include "runtime/cpu/simd_codes.inc"
#include "runtime/cpu/simd_codes_blocks.inc"
#include "runtime/cpu/simd_codes_grid_avx2.inc"
#include "runtime/cpu/simd_codes_grid_formats.inc"
// clang-format on

}  // namespace

CodeMultiply avxvnni_grid_codes(const WeightFormat& format) { return grid_codes(format); }

}  // namespace moepack

#endif
