#include "formats/weights/row_order.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace moepack {
namespace {

constexpr std::size_t kWord = 4;

// A row repeats: a unit of `lead` bytes, words, a unit of `tail` bytes; `period` bytes in all.
struct RowUnits {
  std::size_t period = kWord;
  std::size_t lead = 0;
  std::size_t tail = 0;
};

// Blocks of which the factor stands behind the codes.
bool has_tail(QFormatId id) {
  return id == QFormatId::kQ3K || id == QFormatId::kQ6K || id == QFormatId::kTq10 ||
         id == QFormatId::kTq20;
}

RowUnits row_units(const WeightFormat& format, Component component) {
  const QFormatInfo& info = qformat_info(format.id);
  if (info.kind != QKind::kBlock) {
    return component == Component::kCodes ? RowUnits{} : RowUnits{.period = 2, .lead = 2};
  }
  const std::size_t odd = info.block_bytes % kWord;
  return has_tail(info.id) ? RowUnits{info.block_bytes, 0, odd}
                           : RowUnits{info.block_bytes, odd, 0};
}

// take(offset, bytes) for every unit of [begin, end) of a row, which hold whole units. Words come
// in runs: their unit size is kWord, and `bytes` a multiple of it.
template <typename Take>
void for_each_run(const RowUnits& units, std::uint64_t begin, std::uint64_t end, const Take& take) {
  for (std::uint64_t at = begin; at < end; at += units.period) {
    if (units.lead > 0) take(at, units.lead, units.lead);
    const std::uint64_t words = units.period - units.lead - units.tail;
    if (words > 0) take(at + units.lead, words, kWord);
    if (units.tail > 0) take(at + units.period - units.tail, units.tail, units.tail);
  }
}

// `count` units of `Unit` bytes of the 16 rows of a panel. `rows` and `panel` point at the first.
template <std::size_t Unit, bool ToPanel, typename Rows, typename Panel>
void move_units(Rows* rows, std::uint64_t row_bytes, Panel* panel, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < kPanelRows; ++r) {
      auto* in_row = rows + r * row_bytes + i * Unit;
      auto* in_panel = panel + (i * kPanelRows + r) * Unit;
      if constexpr (ToPanel) {
        std::memcpy(in_panel, in_row, Unit);
      } else {
        std::memcpy(in_row, in_panel, Unit);
      }
    }
  }
}

template <bool ToPanel, typename Rows, typename Panel>
void move_panel(const RowUnits& units, std::uint64_t row_bytes, Rows* rows, Panel* panel) {
  for_each_run(units, 0, row_bytes, [&](std::uint64_t at, std::uint64_t bytes, std::size_t unit) {
    Rows* first = rows + at;
    Panel* to = panel + kPanelRows * at;
    if (unit == kWord) return move_units<4, ToPanel>(first, row_bytes, to, bytes / 4);
    if (unit == 2) return move_units<2, ToPanel>(first, row_bytes, to, 1);
    move_units<1, ToPanel>(first, row_bytes, to, 1);
  });
}

// Affine rows are one run, not many of a unit each.
RowUnits long_units(RowUnits units, std::uint64_t row_bytes) {
  if (units.period == kWord) units.period = row_bytes;
  return units;
}

template <bool ToPanel>
void move_rows(const WeightFormat& format, Component component, std::uint64_t rows,
               std::uint64_t row_bytes, const std::byte* in, std::byte* out) {
  const RowUnits units = long_units(row_units(format, component), row_bytes);
  const std::uint64_t panel = kPanelRows * row_bytes;
  std::uint64_t row = 0;
  for (; row + kPanelRows <= rows; row += kPanelRows, in += panel, out += panel) {
    if constexpr (ToPanel) {
      move_panel<true>(units, row_bytes, in, out);
    } else {
      move_panel<false>(units, row_bytes, out, in);
    }
  }
  std::memcpy(out, in, (rows - row) * row_bytes);
}

// Bytes of `cols` columns of a row, whole groups and blocks.
Components<std::uint64_t> row_bytes_of(const WeightFormat& format, std::uint64_t cols) {
  const QFormatInfo& info = qformat_info(format.id);
  Components<std::uint64_t> bytes;
  if (info.kind == QKind::kBlock) {
    bytes.codes() = cols / info.block_values * info.block_bytes;
    return bytes;
  }
  bytes.codes() = cols * info.bits / 8;
  if (info.kind == QKind::kAffine) {
    bytes[Component::kScales] = bytes[Component::kBiases] = cols / format.group_size * 2;
  }
  return bytes;
}

}  // namespace

std::string_view row_order_name(RowOrder order) {
  return order == RowOrder::kPanels ? "panels16" : "rows";
}

std::optional<RowOrder> row_order_from_name(std::string_view name) {
  for (RowOrder order : {RowOrder::kRows, RowOrder::kPanels}) {
    if (name == row_order_name(order)) return order;
  }
  return std::nullopt;
}

bool has_panels(const WeightFormat& format) {
  return qformat_info(format.id).kind != QKind::kPlain;
}

WeightFormat in_order(WeightFormat format, RowOrder order) {
  if (order == RowOrder::kRows || has_panels(format)) format.row_order = order;
  return format;
}

void rows_to_panels(const WeightFormat& format, Component component, std::uint64_t rows,
                    std::uint64_t row_bytes, const std::byte* in, std::byte* out) {
  move_rows<true>(format, component, rows, row_bytes, in, out);
}

void panels_to_rows(const WeightFormat& format, Component component, std::uint64_t rows,
                    std::uint64_t row_bytes, const std::byte* in, std::byte* out) {
  move_rows<false>(format, component, rows, row_bytes, in, out);
}

void rows_to_order(const WeightFormat& format, Component component, std::uint64_t rows,
                   std::uint64_t row_bytes, const std::byte* in, std::byte* out) {
  if (format.row_order == RowOrder::kPanels) {
    rows_to_panels(format, component, rows, row_bytes, in, out);
  } else {
    std::memcpy(out, in, rows * row_bytes);
  }
}

std::uint64_t byte_in_panels(const WeightFormat& format, Component component, std::uint64_t rows,
                             std::uint64_t row_bytes, std::uint64_t byte) {
  const std::uint64_t row = byte / row_bytes;
  if (row >= rows / kPanelRows * kPanelRows) return byte;
  const RowUnits units = row_units(format, component);
  const std::uint64_t in_row = byte % row_bytes;
  const std::uint64_t in_period = in_row % units.period;
  // The unit's first byte in its period, and its size.
  std::uint64_t first = 0;
  std::uint64_t size = units.lead;
  if (in_period >= units.period - units.tail) {
    first = units.period - units.tail;
    size = units.tail;
  } else if (in_period >= units.lead) {
    first = units.lead + (in_period - units.lead) / kWord * kWord;
    size = kWord;
  }
  const std::uint64_t lane = row % kPanelRows;
  const std::uint64_t unit_at = in_row - in_period + first;
  return (row - lane) * row_bytes + kPanelRows * unit_at + lane * size + in_period - first;
}

std::uint64_t panel_bytes(const QMatrixView& matrix) {
  std::uint64_t sum = 0;
  for (std::uint64_t bytes : row_bytes_of(matrix.format, matrix.cols)) sum += kPanelRows * bytes;
  return sum;
}

QMatrixView slice_rows(const QMatrixView& matrix, std::uint64_t first, std::uint64_t count) {
  assert(matrix.format.row_order == RowOrder::kRows ||
         (first % kPanelRows == 0 && (count % kPanelRows == 0 || first + count == matrix.rows)));
  QMatrixView rows = matrix;
  rows.rows = count;
  const MatrixBytes bytes = *matrix_bytes(matrix.format, matrix.rows, matrix.cols);
  for (const Component c : stored_components(matrix.format)) {
    rows.data[c] = matrix.data[c] + first * (bytes[c] / matrix.rows);
  }
  return rows;
}

QMatrixView restore_panel(const QMatrixView& matrix, std::uint64_t row,
                          std::span<std::byte> buffer) {
  assert(row % kPanelRows == 0 && is_in_panel(matrix, row) && buffer.size() >= panel_bytes(matrix));
  const auto row_bytes = row_bytes_of(matrix.format, matrix.cols);
  QMatrixView panel{
      .format = in_order(matrix.format, RowOrder::kRows), .rows = kPanelRows, .cols = matrix.cols};
  std::byte* at = buffer.data();
  for (Component c : stored_components(matrix.format)) {
    panels_to_rows(matrix.format, c, kPanelRows, row_bytes[c], matrix.data[c] + row * row_bytes[c],
                   at);
    panel.data[c] = at;
    at += kPanelRows * row_bytes[c];
  }
  return panel;
}

PanelRowPiece::PanelRowPiece(const QMatrixView& matrix, std::uint64_t row, std::uint64_t first,
                             std::uint64_t cols)
    : view_{.format = in_order(matrix.format, RowOrder::kRows), .rows = 1, .cols = cols} {
  assert(is_in_panel(matrix, row) && first % kColumns == 0 && cols <= kColumns);
  const std::uint64_t lane = row % kPanelRows;
  const auto row_bytes = row_bytes_of(matrix.format, matrix.cols);
  const auto skipped = row_bytes_of(matrix.format, first);
  const auto bytes = row_bytes_of(matrix.format, cols);
  std::byte* out = bytes_.data();
  for (Component c : stored_components(matrix.format)) {
    const std::byte* panel = matrix.data[c] + (row - lane) * row_bytes[c];
    view_.data[c] = out;
    for_each_run(row_units(matrix.format, c), skipped[c], skipped[c] + bytes[c],
                 [&](std::uint64_t at, std::uint64_t size, std::size_t unit) {
                   for (std::uint64_t i = 0; i < size; i += unit, out += unit) {
                     std::memcpy(out, panel + kPanelRows * (at + i) + lane * unit, unit);
                   }
                 });
  }
  assert(out <= bytes_.data() + kMostBytes);
}

}  // namespace moepack
