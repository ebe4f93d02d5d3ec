// Products with matrices in panels (formats/weights/row_order.h) by kernels that take rows one
// after the other: a panel at a time becomes rows in scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/bytes.h"
#include "formats/weights/row_order.h"

namespace moepack {

// What a panel of `cols` columns takes at most: nine bits a weight, those of q8 with groups of 32.
constexpr std::size_t restored_panel_floats(std::uint64_t cols) {
  return div_up(kPanelRows * cols * 9 / 8, sizeof(float));
}

// Calls multiply(matrix, row_begin, row_end, y, scratch) for parts of rows [begin, end) of `w`;
// begin is a multiple of kPanelRows. In the calls rows of `matrix` follow each other, and y[row] is
// where the first token's output of its row goes. `scratch` has restored_panel_floats(w.cols)
// floats more than multiply() needs.
template <typename Multiply>
void multiply_restored(const QMatrixView& w, std::uint64_t begin, std::uint64_t end, float* y,
                       std::span<float> scratch, const Multiply& multiply) {
  const std::size_t rest = scratch.size() - restored_panel_floats(w.cols);
  const std::span<std::byte> buffer = std::as_writable_bytes(scratch.subspan(rest));
  std::uint64_t row = begin;
  for (; row < end && is_in_panel(w, row); row += kPanelRows) {
    const std::uint64_t rows = std::min<std::uint64_t>(kPanelRows, end - row);
    multiply(restore_panel(w, row, buffer), 0, rows, y + row, scratch.first(rest));
  }
  if (row >= end) return;
  QMatrixView behind = w;  // the last rows, which are where they always are
  behind.format = in_order(w.format, RowOrder::kRows);
  multiply(behind, row, end, y, scratch.first(rest));
}

}  // namespace moepack
