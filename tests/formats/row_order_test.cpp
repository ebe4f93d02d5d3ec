#include "formats/weights/row_order.h"

#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/panel_matrix.h"
#include "tests/support/test_matrix.h"

namespace moepack::row_order_test {
namespace {

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(RowOrder, RowsDecodeToTheSameBits) {
  std::uint32_t seed = 0;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!has_panels(format)) continue;
    for (std::uint64_t cols : {32U, 256U, 768U, 1152U}) {
      for (std::uint64_t rows : {7U, 16U, 37U}) {
        if (!matrix_bytes(format, rows, cols).has_value()) continue;
        const test::TestMatrix matrix(format, rows, cols, test::Values::kUsual, 0, ++seed);
        const test::PanelMatrix panels(matrix.view(), 0);
        std::vector<float> expected(cols);
        std::vector<float> got(cols);
        for (std::uint64_t r = 0; r < rows; ++r) {
          decode_row(matrix.view(), r, expected);
          decode_row(panels.view(), r, got);
          ASSERT_TRUE(same_bits(got, expected)) << to_string(format) << " row " << r;
        }
      }
    }
  }
}

TEST(RowOrder, PanelsBecomeTheRowsAgain) {
  std::uint32_t seed = 500;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!has_panels(format)) continue;
    const std::uint64_t cols = 768;
    const test::TestMatrix matrix(format, 37, cols, test::Values::kUsual, 1, ++seed);
    const test::PanelMatrix panels(matrix.view(), 1);
    const MatrixBytes bytes = matrix_bytes(format, 37, cols).value();
    for (Component c : stored_components(format)) {
      std::vector<std::byte> rows(bytes[c]);
      panels_to_rows(format, c, 37, bytes[c] / 37, panels.view().data[c], rows.data());
      EXPECT_EQ(std::memcmp(rows.data(), matrix.view().data[c], rows.size()), 0)
          << to_string(format) << ' ' << component_name(c);
    }
    std::vector<std::byte> buffer(panel_bytes(panels.view()));
    const QMatrixView restored = restore_panel(panels.view(), 16, buffer);
    EXPECT_EQ(restored.rows, kPanelRows);
    EXPECT_EQ(restored.format, format);
    std::vector<float> expected(cols);
    std::vector<float> got(cols);
    decode_row(matrix.view(), 20, expected);
    decode_row(restored, 4, got);
    EXPECT_TRUE(same_bits(got, expected)) << to_string(format);
  }
}

TEST(RowOrder, EveryByteLiesWhereItIsSaid) {
  std::uint32_t seed = 900;
  for (const WeightFormat& format : test::all_weight_formats()) {
    if (!has_panels(format)) continue;
    const test::TestMatrix matrix(format, 37, 768, test::Values::kUsual, 1, ++seed);
    const test::PanelMatrix panels(matrix.view(), 1);
    const MatrixBytes bytes = matrix_bytes(format, 37, 768).value();
    for (Component c : stored_components(format)) {
      for (std::uint64_t i = 0; i < bytes[c]; ++i) {
        const std::uint64_t at = byte_in_panels(format, c, 37, bytes[c] / 37, i);
        ASSERT_LT(at, bytes[c]);
        ASSERT_EQ(panels.view().data[c][at], matrix.view().data[c][i])
            << to_string(format) << ' ' << component_name(c) << ' ' << i;
      }
    }
  }
}

// Where a unit lies, counted by hand.
TEST(RowOrder, UnitsOfARowLieSideBySide) {
  const WeightFormat q40{.id = QFormatId::kQ40};
  const std::uint64_t row_bytes = 2 * 18;  // 64 columns
  std::vector<std::byte> rows(16 * row_bytes);
  std::vector<std::byte> panel(rows.size());
  for (std::size_t r = 0; r < 16; ++r) {
    for (std::size_t i = 0; i < row_bytes; ++i) {
      rows[r * row_bytes + i] = static_cast<std::byte>(r * 7 + i);
    }
  }
  rows_to_panels(q40, Component::kCodes, 16, row_bytes, rows.data(), panel.data());
  const auto row = [&](std::size_t r, std::size_t i) { return rows[r * row_bytes + i]; };
  EXPECT_EQ(panel[2 * 5 + 1], row(5, 1));                        // scale of the first block
  EXPECT_EQ(panel[32 + 64 * 2 + 4 * 9 + 3], row(9, 2 + 8 + 3));  // its third word of codes
  EXPECT_EQ(panel[16 * 18 + 2 * 15], row(15, 18));               // scale of the second block
  // A factor behind the codes.
  const WeightFormat q6k{.id = QFormatId::kQ6K};
  std::vector<std::byte> blocks(16 * 210);
  std::vector<std::byte> panels(blocks.size());
  blocks[3 * 210 + 208] = std::byte{77};
  rows_to_panels(q6k, Component::kCodes, 16, 210, blocks.data(), panels.data());
  EXPECT_EQ(panels[16 * 208 + 3 * 2], std::byte{77});
}

TEST(RowOrder, PlainFormatsStayInRows) {
  EXPECT_EQ(in_order({.id = QFormatId::kBf16}, RowOrder::kPanels).row_order, RowOrder::kRows);
  EXPECT_EQ(row_order_from_name("panels16"), RowOrder::kPanels);
  EXPECT_EQ(row_order_from_name("rows"), RowOrder::kRows);
  EXPECT_FALSE(row_order_from_name("columns").has_value());
}

}  // namespace
}  // namespace moepack::row_order_test
