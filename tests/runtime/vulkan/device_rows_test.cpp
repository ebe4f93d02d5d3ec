#include "runtime/vulkan/device_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "formats/weights/row_order.h"
#include "tests/runtime/vulkan/device_bytes.h"
#include "tests/support/test_matrix.h"

namespace moepack::device_rows_test {
namespace {

constexpr std::uint64_t kRows = 37;  // two panels and five rows
constexpr std::uint64_t kCols = 768;

std::uint64_t bytes_of_parts(const WeightFormat& format) {
  std::uint64_t bytes = 0;
  for (const BlockPart& part : block_parts(format.id)) bytes += part.bytes;
  return bytes;
}

test::TestMatrix random_matrix(const WeightFormat& format) {
  return {format, kRows, kCols, test::Values::kUsual, 0, 5};
}

TEST(DeviceRowsTest, PartsAreTheBlock) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    const std::uint64_t block_bytes = bytes_of_parts(format);
    if (block_bytes == 0) continue;
    SCOPED_TRACE(to_string(format));
    EXPECT_EQ(block_bytes, qformat_info(format.id).block_bytes);
    std::vector<int> uses(block_bytes);
    for (const BlockPart& part : block_parts(format.id)) {
      ASSERT_LE(part.offset + part.bytes, block_bytes);
      for (std::uint32_t i = 0; i < part.bytes; ++i) ++uses[part.offset + i];
    }
    EXPECT_EQ(uses, std::vector<int>(block_bytes, 1));
  }
}

TEST(DeviceRowsTest, PartsOfAllBlocksFollowEachOther) {
  const WeightFormat format{.id = QFormatId::kIq3Xxs};
  const test::TestMatrix matrix = random_matrix(format);
  constexpr std::uint64_t kBlocks = kCols / 256;
  const std::byte* in = matrix.view().data[Component::kCodes];
  const std::vector<std::byte> out = test::device_bytes(matrix.view(), Component::kCodes);
  for (std::uint64_t row = 0; row < kRows; ++row) {
    for (std::uint64_t block = 0; block < kBlocks; ++block) {
      const std::byte* from =
          in + (kBlocks * row + block) * 98;  // scale, 64 entries, 32 bytes of signs
      const std::byte* to = out.data() + kBlocks * row * 98;
      EXPECT_TRUE(std::equal(from + 2, from + 66, to + 64 * block));
      EXPECT_TRUE(std::equal(from + 66, from + 98, to + kBlocks * 64 + 32 * block));
      EXPECT_TRUE(std::equal(from, from + 2, to + kBlocks * 96 + 2 * block));
    }
  }
}

// Of every format, all at once and in pieces.
TEST(DeviceRowsTest, PanelsGiveWhatRowsGive) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    if (!has_panels(format)) continue;
    SCOPED_TRACE(to_string(format));
    const test::TestMatrix matrix = random_matrix(format);
    const WeightFormat in_panels = in_order(format, RowOrder::kPanels);
    for (const Component c : stored_components(format)) {
      const std::vector<std::byte> expected = test::device_bytes(matrix.view(), c);
      const std::uint64_t row_bytes = expected.size() / kRows;
      std::vector<std::byte> panels(expected.size());
      rows_to_panels(format, c, kRows, row_bytes, matrix.view().data[c], panels.data());
      std::vector<std::byte> whole(expected.size());
      to_device_rows(in_panels, c, kRows, row_bytes, panels.data(), whole.data());
      EXPECT_EQ(whole, expected);
      std::vector<std::byte> pieces(expected.size());
      const std::uint64_t step = rows_of_piece(in_panels, row_bytes, 17 * row_bytes);
      for (std::uint64_t row = 0; row < kRows; row += step) {
        to_device_rows(in_panels, c, std::min(step, kRows - row), row_bytes,
                       panels.data() + row * row_bytes, pieces.data() + row * row_bytes);
      }
      EXPECT_EQ(pieces, expected);
    }
  }
}

TEST(DeviceRowsTest, RowsWithoutBlocksStayAsTheyAre) {
  for (const WeightFormat& format : test::gpu_weight_formats()) {
    SCOPED_TRACE(to_string(format));
    const bool has_blocks = !is_affine(format) && format.id >= QFormatId::kQ40;
    EXPECT_EQ(differs_on_device(format), has_blocks);
    if (has_blocks) continue;
    const test::TestMatrix matrix = random_matrix(format);
    const std::vector<std::byte> out = test::device_bytes(matrix.view(), Component::kCodes);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), matrix.view().data[Component::kCodes]));
  }
}

}  // namespace
}  // namespace moepack::device_rows_test
