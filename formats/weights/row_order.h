// The order in which a matrix's rows lie in memory. Usually one after the other. In panels, the
// same parts of 16 rows stand side by side, so that a kernel which computes 16 rows at once, a row
// in each lane of a vector, reads a single stream and moves nothing between lanes.
//
// A row of a component is a sequence of units: 32-bit words of affine codes, 16-bit scales and
// biases; of a block of ggml's its words, and the one or two bytes before or behind them. A panel
// is unit 0 of its 16 rows, then unit 1 of them, and so on. So it has the bytes of its rows, and
// the unit at byte o of row r of a panel is at byte 16 o + r (size of the unit) of the panel. The
// last rows of a matrix, fewer than 16, lie one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "formats/weights/qformat.h"

namespace moepack {

constexpr std::size_t kPanelRows = 16;

// "rows", "panels16".
std::string_view row_order_name(RowOrder order);
std::optional<RowOrder> row_order_from_name(std::string_view name);

// Whether matrices of the format can be in panels: affine codes and ggml's blocks can.
bool has_panels(const WeightFormat& format);
// The format with its rows in another order; `format` itself where that order is not possible.
WeightFormat in_order(WeightFormat format, RowOrder order);

// Whether row `row` of the matrix is part of a panel.
inline bool is_in_panel(const QMatrixView& matrix, std::uint64_t row) {
  return matrix.format.row_order == RowOrder::kPanels &&
         row < matrix.rows / kPanelRows * kPanelRows;
}

// Rows [first, first + count), which follow each other in memory. In panels, first is a multiple of
// kPanelRows, and so is count unless the rows are the last of the matrix.
QMatrixView slice_rows(const QMatrixView& matrix, std::uint64_t first, std::uint64_t count);

// `rows` rows of a component from one order to the other; in and out do not overlap and have
// rows * row_bytes bytes each. Of a large matrix, any piece that begins at a multiple of kPanelRows
// can be taken by itself. The format's own row_order does not matter.
void rows_to_panels(const WeightFormat& format, Component component, std::uint64_t rows,
                    std::uint64_t row_bytes, const std::byte* in, std::byte* out);
void panels_to_rows(const WeightFormat& format, Component component, std::uint64_t rows,
                    std::uint64_t row_bytes, const std::byte* in, std::byte* out);

// Rows into the order of `format`, which may be their own: then they are copied.
void rows_to_order(const WeightFormat& format, Component component, std::uint64_t rows,
                   std::uint64_t row_bytes, const std::byte* in, std::byte* out);

// Where byte `byte` of the rows of a component lies in the component's bytes when its `rows` rows
// of `row_bytes` are in panels.
std::uint64_t byte_in_panels(const WeightFormat& format, Component component, std::uint64_t rows,
                             std::uint64_t row_bytes, std::uint64_t byte);

// The panel that begins at row `row` as rows, in `buffer` of panel_bytes(matrix).
QMatrixView restore_panel(const QMatrixView& matrix, std::uint64_t row,
                          std::span<std::byte> buffer);
std::uint64_t panel_bytes(const QMatrixView& matrix);

// Some columns of one row of a panel, as a matrix of one row.
class PanelRowPiece {
 public:
  // Columns of a piece but the last of a row: whole groups and blocks of every format.
  static constexpr std::uint64_t kColumns = 256;

  // Columns [first, first + cols) of row `row`, cols <= kColumns; first is a multiple of kColumns.
  PanelRowPiece(const QMatrixView& matrix, std::uint64_t row, std::uint64_t first,
                std::uint64_t cols);
  PanelRowPiece(const PanelRowPiece&) = delete;
  PanelRowPiece& operator=(const PanelRowPiece&) = delete;

  // Of this object's bytes.
  const QMatrixView& view() const { return view_; }

 private:
  static constexpr std::size_t kMostBytes = 512;  // of all components; q8_0 has 272
  std::array<std::byte, kMostBytes> bytes_;
  QMatrixView view_;
};

}  // namespace moepack
