// The table of AVX-512 with VNNI. It is the table of AVX-512, except that products of few tokens
// with ggml's blocks are formed in integers where inputs allow it. And the table of AMX, which is
// the same but for products in integers.
#if defined(__x86_64__)

#include "runtime/cpu/block_kernels.h"
#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"

namespace moepack {
namespace {

const DigitKernel* find_digit_kernel(QFormatId id) {
  const DigitKernel* kernel = legacy_digits(id);
  return kernel != nullptr ? kernel : k_digits(id);
}

void matmul(const QMatrixView& w, const float* x, std::size_t x_stride, std::size_t tokens,
            std::uint64_t row_begin, std::uint64_t row_end, float* y, std::size_t y_stride,
            std::span<float> scratch) {
  const auto in_floats = avx512_kernels().matmul;
  const DigitKernel* kernel = nullptr;
  if (tokens <= kMaxFusedTokens && is_block(w.format)) kernel = find_digit_kernel(w.format.id);
  if (kernel == nullptr || tokens == 0 || row_begin >= row_end) {
    return in_floats(w, x, x_stride, tokens, row_begin, row_end, y, y_stride, scratch);
  }
  const MatmulCall call{
      w, x, x_stride, tokens, row_begin, row_end, y, y_stride, align_scratch(scratch)};
  if (kernel->multiply(call)) return;
  // A token's result must not depend on the other tokens, so each of them finds its own way.
  for (std::size_t t = 0; t < tokens; ++t) {
    const MatmulCall one{w,       x + t * x_stride, x_stride, 1,           row_begin,
                         row_end, y + t * y_stride, y_stride, call.scratch};
    if (tokens > 1 && kernel->multiply(one)) continue;
    in_floats(w, one.x, x_stride, 1, row_begin, row_end, one.y, y_stride, scratch);
  }
}

}  // namespace

const Kernels& avx512vnni_kernels() {
  static const Kernels kTable = [] {
    Kernels table = with_codes(avx512_kernels(), "avx512vnni", avx512vnni_code_kernels());
    table.matmul = matmul;
    table.bits = table.name;
    return table;
  }();
  return kTable;
}

const Kernels& amx_kernels() {
  static const Kernels kTable = with_codes(avx512vnni_kernels(), "amx", amx_code_kernels());
  return kTable;
}

}  // namespace moepack

#endif
