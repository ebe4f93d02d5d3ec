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

bool supports(const WeightFormat& format) {
  return find_codes(in_order(format, RowOrder::kRows)) != nullptr;
}

bool reads_panels(const WeightFormat& format) {
  return has_panels(format) && find_codes(in_order(format, RowOrder::kPanels)) != nullptr;
}

void multiply(const QMatrixView& w, const InputBlock* const* x, std::size_t tokens,
              std::uint64_t row_begin, std::uint64_t row_end, float* y, std::size_t y_stride,
              std::span<float> scratch) {
  multiply_with(find_codes, w, x, tokens, row_begin, row_end, y, y_stride, scratch);
}

}  // namespace

const CodeKernels& neon_code_kernels() {
  static constexpr CodeKernels kTable{supports, reads_panels, quantize, multiply};
  return kTable;
}

}  // namespace moepack

#endif
