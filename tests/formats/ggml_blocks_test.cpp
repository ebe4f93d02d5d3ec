// ggml's blocks against what ggml itself makes of them (tests/golden/ggml), bit for bit.
#include "formats/ggml_blocks.h"

#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/bytes.h"
#include "formats/file.h"
#include "formats/qcodec.h"
#include "tests/support/status_matchers.h"

namespace moepack {
namespace {

struct Golden {
  QFormatId id;
  const char* file;  // base name under tests/golden/ggml
};
constexpr Golden kGoldens[] = {
    {QFormatId::kQ5K, "q5_K"}, {QFormatId::kIq3Xxs, "iq3_xxs"}, {QFormatId::kIq4Xs, "iq4_xs"}};

std::string read_golden(const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/ggml" / name;
  const auto text = read_text_file(path, 1U << 20);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text.is_ok() ? text.value() : std::string();
}

// The blocks as rows of `per_row` blocks each.
QMatrixView view_of(const std::string& bytes, const QFormatInfo& info, std::uint64_t per_row) {
  return {.format = {.id = info.id},
          .rows = bytes.size() / info.block_bytes / per_row,
          .cols = per_row * info.block_values,
          .weight = reinterpret_cast<const std::byte*>(bytes.data())};
}

TEST(GgmlBlocks, EveryTypeHasAGolden) {
  std::size_t blocks = 0;
  for (const QFormatInfo& info : qformats()) blocks += info.kind == QKind::kBlock ? 1 : 0;
  EXPECT_EQ(blocks, std::size(kGoldens));
}

TEST(GgmlBlocks, DecodeAsGgmlDoes) {
  for (const Golden& golden : kGoldens) {
    const QFormatInfo& info = qformat_info(golden.id);
    const std::string bytes = read_golden(std::string(golden.file) + ".bin");
    const std::string expected = read_golden(std::string(golden.file) + ".f32");
    ASSERT_EQ(bytes.size() % info.block_bytes, 0U);
    ASSERT_EQ(expected.size(), bytes.size() / info.block_bytes * info.block_values * 4);
    for (std::uint64_t per_row : {1U, 4U}) {
      const QMatrixView w = view_of(bytes, info, per_row);
      std::vector<float> row(w.cols);
      for (std::uint64_t r = 0; r < w.rows; ++r) {
        decode_row(w, r, row);
        for (std::uint64_t c = 0; c < w.cols; ++c) {
          const auto wanted = load_le<std::uint32_t>(expected.data() + (r * w.cols + c) * 4);
          ASSERT_EQ(std::bit_cast<std::uint32_t>(row[c]), wanted)
              << info.name << " row " << r << " column " << c;
        }
      }
    }
  }
}

TEST(GgmlBlocks, PartsOfARowAreTheRows) {
  for (const Golden& golden : kGoldens) {
    const QFormatInfo& info = qformat_info(golden.id);
    const std::string bytes = read_golden(std::string(golden.file) + ".bin");
    const QMatrixView w = view_of(bytes, info, 4);
    std::vector<float> row(w.cols);
    decode_row(w, 3, row);
    std::vector<float> part(2 * std::size_t{info.block_values});
    decode_block_columns(w, 3, info.block_values, part);
    for (std::size_t i = 0; i < part.size(); ++i) {
      ASSERT_EQ(part[i], row[info.block_values + i]) << info.name << " at " << i;
    }
  }
}

TEST(GgmlBlocks, SizesFollowFromTheTable) {
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kIq3Xxs}, 1024, 4096)->total(), 1605632U);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kIq4Xs}, 4096, 1024)->total(), 2228224U);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kQ5K}, 4096, 1024)->total(), 2883584U);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kQ5K}, 4, 128), std::nullopt);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kQ5K}, ~std::uint64_t{0} / 2, 256), std::nullopt);
}

}  // namespace
}  // namespace moepack
