// Products in integers at level neon: inputs, and which family has the kernel of a format.
#if defined(__aarch64__)

#include <limits>

#include "formats/weights/row_order.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/code_table.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/simd_intrinsics_neon.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_neon.inc"
#include "runtime/cpu/simd_codes_neon.inc"
#include "runtime/cpu/simd_codes_inputs.inc"
// clang-format on

CodeMultiply find_codes(const WeightFormat& format) {
  CodeMultiply found = neon_basic_codes(format);
  if (found == nullptr) found = neon_k_codes(format);
  if (found == nullptr) found = neon_small_codes(format);
  if (found == nullptr) found = neon_grid_codes(format);
  return found;
}

#include "runtime/cpu/simd_codes_table.inc"

}  // namespace

const CodeKernels& neon_code_kernels() { return kCodeTable; }

}  // namespace moepack

#endif
