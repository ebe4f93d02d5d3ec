#include "runtime/cpu/code_table.h"

#include "runtime/cpu/code_tuning.h"
#include "runtime/cpu/codes_reference.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/model/restored_panels.h"

namespace moepack {
namespace {

void multiply_rows(CodeMultiply kernel, const CodeProduct& product, bool has_tiles) {
  const std::uint64_t rows = product.row_end - product.row_begin;
  const std::uint64_t whole = product.row_begin + rows / kCodeRows * kCodeRows;
  if (whole > product.row_begin) {
    CodeProduct vectors = product;
    vectors.row_end = whole;
    kernel({vectors, align_scratch(product.scratch), code_tuning(), has_tiles});
  }
  if (whole < product.row_end) {
    CodeProduct last = product;
    last.row_begin = whole;
    reference_code_kernels().multiply(last);
  }
}

}  // namespace

void multiply_with(CodeMultiply (*find)(const WeightFormat&), const CodeProduct& product,
                   bool has_tiles) {
  const CodeProduct& p = product;
  if (p.tokens == 0 || p.row_begin >= p.row_end) return;
  if (const CodeMultiply kernel = find(p.w.format); kernel != nullptr) {
    return multiply_rows(kernel, p, has_tiles);
  }
  const CodeMultiply kernel = find(in_order(p.w.format, RowOrder::kRows));
  multiply_restored(p.w, p.row_begin, p.row_end, p.y, p.scratch,
                    [&](const QMatrixView& rows, std::uint64_t begin, std::uint64_t end, float* to,
                        std::span<float> left) {
                      multiply_rows(
                          kernel, {rows, p.x, p.digits, p.tokens, begin, end, to, p.y_stride, left},
                          has_tiles);
                    });
}

}  // namespace moepack
