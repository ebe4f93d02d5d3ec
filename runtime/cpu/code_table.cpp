#include "runtime/cpu/code_table.h"

#include "runtime/cpu/codes_reference.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/model/restored_panels.h"

namespace moepack {
namespace {

void multiply_rows(CodeMultiply kernel, const QMatrixView& w, const InputBlock* const* x,
                   std::size_t digits, std::size_t tokens, std::uint64_t row_begin,
                   std::uint64_t row_end, float* y, std::size_t y_stride,
                   std::span<float> scratch) {
  const std::uint64_t whole = row_begin + (row_end - row_begin) / kCodeRows * kCodeRows;
  if (whole > row_begin) {
    kernel({w, x, digits, tokens, row_begin, whole, y, y_stride, align_scratch(scratch),
            memory_streams()});
  }
  if (whole < row_end) {
    reference_code_kernels().multiply(w, x, digits, tokens, whole, row_end, y, y_stride, scratch);
  }
}

}  // namespace

void multiply_with(CodeMultiply (*find)(const WeightFormat&), const QMatrixView& w,
                   const InputBlock* const* x, std::size_t digits, std::size_t tokens,
                   std::uint64_t row_begin, std::uint64_t row_end, float* y, std::size_t y_stride,
                   std::span<float> scratch) {
  if (tokens == 0 || row_begin >= row_end) return;
  if (const CodeMultiply kernel = find(w.format); kernel != nullptr) {
    return multiply_rows(kernel, w, x, digits, tokens, row_begin, row_end, y, y_stride, scratch);
  }
  const CodeMultiply kernel = find(in_order(w.format, RowOrder::kRows));
  multiply_restored(w, row_begin, row_end, y, scratch,
                    [&](const QMatrixView& rows, std::uint64_t begin, std::uint64_t end, float* to,
                        std::span<float> left) {
                      multiply_rows(kernel, rows, x, digits, tokens, begin, end, to, y_stride,
                                    left);
                    });
}

}  // namespace moepack
