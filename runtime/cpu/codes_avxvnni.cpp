// Products in integers at level avxvnni: inputs, and which family has the kernel of a format.
#if defined(__x86_64__)

#include <limits>

#include "formats/weights/row_order.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/code_table.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/simd_intrinsics.h"

namespace moepack {
namespace {

// clang-format off
#include "runtime/cpu/simd_avxvnni.inc"
#include "runtime/cpu/simd_codes_rows.inc"
#include "runtime/cpu/simd_codes_avx2.inc"
#include "runtime/cpu/simd_codes_inputs.inc"
// clang-format on

CodeMultiply find_codes(const WeightFormat& format) {
  CodeMultiply found = avxvnni_basic_codes(format);
  if (found == nullptr) found = avxvnni_k_codes(format);
  if (found == nullptr) found = avxvnni_small_codes(format);
  if (found == nullptr) found = avxvnni_grid_codes(format);
  return found;
}

#include "runtime/cpu/simd_codes_table.inc"

}  // namespace

const CodeKernels& avxvnni_code_kernels() { return kCodeTable; }

}  // namespace moepack

#endif
