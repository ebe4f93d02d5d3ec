// Products in integers at level avx512vnni: inputs, and which family has the kernel of a format.
// Level amx has the same kernels, which then use tiles.
#if defined(__x86_64__)

#include <limits>

#include "formats/weights/row_order.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/code_table.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {

CodeMultiply avx512vnni_codes(const WeightFormat& format) {
  CodeMultiply found = avx512vnni_basic_codes(format);
  if (found == nullptr) found = avx512vnni_k_codes(format);
  if (found == nullptr) found = avx512vnni_small_codes(format);
  if (found == nullptr) found = avx512vnni_grid_codes(format);
  return found;
}

namespace {

// clang-format off
#include "runtime/cpu/simd_avx512.inc"
#include "runtime/cpu/simd_codes_rows.inc"
#include "runtime/cpu/simd_target_avx512vnni.inc"
#include "runtime/cpu/simd_codes_avx512.inc"
#include "runtime/cpu/simd_codes_inputs.inc"
// clang-format on

CodeMultiply find_codes(const WeightFormat& format) { return avx512vnni_codes(format); }

#include "runtime/cpu/simd_codes_table.inc"

void multiply_with_tiles(const CodeProduct& product) { multiply_with(find_codes, product, true); }

constexpr CodeKernels kTileTable{supports, reads_panels, quantize, multiply_with_tiles};

}  // namespace

const CodeKernels& avx512vnni_code_kernels() { return kCodeTable; }
const CodeKernels& amx_code_kernels() { return kTileTable; }

}  // namespace moepack

#endif
