// A matrix whose rows are in panels, made from one whose rows follow each other.
#pragma once

#include <vector>

#include "formats/weights/row_order.h"
#include "tests/support/test_matrix.h"

namespace moepack::test {

class PanelMatrix {
 public:
  // `shift`: as of TestMatrix.
  PanelMatrix(const QMatrixView& rows, std::size_t shift) : view_(rows) {
    view_.format = in_order(rows.format, RowOrder::kPanels);
    const MatrixBytes bytes = matrix_bytes(rows.format, rows.rows, rows.cols).value();
    for (Component c : stored_components(rows.format)) {
      std::vector<std::byte> out(bytes[c]);
      rows_to_panels(rows.format, c, rows.rows, bytes[c] / rows.rows, rows.data[c], out.data());
      components_.emplace_back(out, shift);
      view_.data[c] = components_.back().data();
    }
  }

  const QMatrixView& view() const { return view_; }

 private:
  QMatrixView view_;
  std::vector<Bytes> components_;
};

}  // namespace moepack::test
