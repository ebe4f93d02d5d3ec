// ggml's blocks against what ggml itself makes of them (tests/golden/ggml), bit for bit.
#include "formats/weights/ggml_blocks.h"

#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/base/bytes.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/weights/qcodec.h"
#include "tests/support/status_matchers.h"

namespace moepack::ggml_blocks_test {
namespace {

// All of ggml's block formats, with the base name of their files under tests/golden/ggml.
struct Golden {
  QFormatId id;
  std::string file;
};
std::vector<Golden> goldens() {
  std::vector<Golden> all;
  for (const QFormatInfo& info : qformats()) {
    if (!is_ggml_block({.id = info.id})) continue;
    std::string file(info.name);
    if (file.ends_with("_k")) file.back() = 'K';
    all.push_back({info.id, file});
  }
  return all;
}

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
          .data = affine_components<const std::byte*>(
              reinterpret_cast<const std::byte*>(bytes.data()))};
}

// The table against the index that was written beside the values.
TEST(GgmlBlocks, TheTableHoldsTheTypesOfTheGoldens) {
  const auto index = parse_json(read_golden("index.json"), {.file = "index.json"});
  ASSERT_OK(index);
  EXPECT_EQ(index.value().size(), 25U);
  EXPECT_EQ(index.value().size(), goldens().size());
  for (const Golden& golden : goldens()) {
    const QFormatInfo& info = qformat_info(golden.id);
    ASSERT_TRUE(index.value().contains(golden.file)) << golden.file;
    const nlohmann::json& entry = index.value()[golden.file];
    EXPECT_EQ(static_cast<std::uint32_t>(info.id), 64 + entry["id"].get<std::uint32_t>());
    EXPECT_EQ(info.block_values, entry["block_elems"].get<std::uint32_t>()) << info.name;
    EXPECT_EQ(info.block_bytes, entry["block_bytes"].get<std::uint32_t>()) << info.name;
    EXPECT_EQ(read_golden(golden.file + ".bin").size(),
              entry["n_blocks"].get<std::size_t>() * info.block_bytes);
  }
}

TEST(GgmlBlocks, DecodeAsGgmlDoes) {
  for (const Golden& golden : goldens()) {
    const QFormatInfo& info = qformat_info(golden.id);
    const std::string bytes = read_golden(golden.file + ".bin");
    const std::string expected = read_golden(golden.file + ".f32");
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
  for (const Golden& golden : goldens()) {
    const QFormatInfo& info = qformat_info(golden.id);
    const std::string bytes = read_golden(golden.file + ".bin");
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

// Puts entry `index` of its grid into the first group of a block that is otherwise zero, with
// scales that leave the digits' values multiplied by a power of two, and no sign set.
struct GridCase {
  const char* grid;  // of codebooks.json
  QFormatId id;
  float scale;   // of the values
  float offset;  // added before scaling
  void (*place)(std::byte* block, std::uint32_t index);
};

void put(std::byte* at, std::uint32_t value) { *at = static_cast<std::byte>(value & 255U); }

const GridCase kGridCases[] = {
    {"iq2_xxs", QFormatId::kIq2Xxs, 0.125F, 0,
     [](std::byte* block, std::uint32_t index) { put(block + 2, index); }},
    {"iq2_xs", QFormatId::kIq2Xs, 0.125F, 0,
     [](std::byte* block, std::uint32_t index) {
       put(block + 2, index);
       put(block + 3, index >> 8);
     }},
    {"iq2_s", QFormatId::kIq2S, 0.125F, 0,
     [](std::byte* block, std::uint32_t index) {
       put(block + 2, index);
       put(block + 66, index >> 8);
     }},
    {"iq3_xxs", QFormatId::kIq3Xxs, 0.25F, 0,
     [](std::byte* block, std::uint32_t index) { put(block + 2, index); }},
    {"iq3_s", QFormatId::kIq3S, 1, 0,
     [](std::byte* block, std::uint32_t index) {
       put(block + 2, index);
       put(block + 66, index >> 8);
     }},
    {"iq1_s", QFormatId::kIq1S, 1, 0.125F,
     [](std::byte* block, std::uint32_t index) {
       put(block + 2, index);
       put(block + 34, index >> 8);
     }},
    {"iq1_s", QFormatId::kIq1M, 1, 0.125F,
     [](std::byte* block, std::uint32_t index) {
       put(block, index);
       put(block + 32, index >> 8);
       put(block + 53, 0xc0);  // 1.0 as binary16, a quarter in the top four bits of each scale
       put(block + 55, 0x30);
     }},
};

// Every entry of every grid; the goldens above meet a part of them.
TEST(GgmlBlocks, GridsAreGgmls) {
  const auto books = parse_json(read_golden("codebooks.json"), {.file = "codebooks.json"});
  ASSERT_OK(books);
  for (const GridCase& c : kGridCases) {
    const nlohmann::json& book = books.value()[c.grid];
    const QFormatInfo& info = qformat_info(c.id);
    const std::uint32_t bits = book["bits_per_digit"];
    for (std::uint32_t index = 0; index < book["packed"].size(); ++index) {
      std::string block(info.block_bytes, '\0');
      auto* bytes = reinterpret_cast<std::byte*>(block.data());
      if (c.id != QFormatId::kIq1M) store_le<std::uint16_t>(bytes, 0x3c00);  // d = 1
      c.place(bytes, index);
      std::vector<float> values(info.block_values);
      decode_row(view_of(block, info, 1), 0, values);
      const auto packed = book["packed"][index].get<std::uint32_t>();
      for (std::uint32_t j = 0; j < (bits == 2 ? 8U : 4U); ++j) {
        const std::uint32_t digit = (packed >> (bits * j)) & ((1U << bits) - 1U);
        const auto value = book["value_of_digit"][std::to_string(digit)].get<float>();
        ASSERT_EQ(values[j], (value + c.offset) * c.scale)
            << info.name << " entry " << index << " weight " << j;
      }
    }
  }
}

// Scale bytes that the goldens leave out. Values by the formulas of E8M0 and of ggml's unsigned
// E4M3 (0x7f is zero there, bit 7 is not looked at); gguf-py gives the same for all 256.
TEST(GgmlBlocks, ByteScalesAtTheirLimits) {
  const auto first_value = [](QFormatId id, int scale, int codes) {
    const QFormatInfo& info = qformat_info(id);
    std::string block(info.block_bytes, static_cast<char>(codes));
    const std::size_t scales = id == QFormatId::kNvfp4 ? 4 : 1;
    block.replace(0, scales, scales, static_cast<char>(scale));
    std::vector<float> values(info.block_values);
    decode_row(view_of(block, info, 1), 0, values);
    return values[0];
  };
  EXPECT_EQ(first_value(QFormatId::kMxfp4, 0, 0x22), 0x1p-127F);  // code 2 is 1.0
  EXPECT_EQ(first_value(QFormatId::kMxfp4, 1, 0x99), -0x1p-127F);
  EXPECT_EQ(first_value(QFormatId::kMxfp4, 127, 0x77), 6.0F);
  EXPECT_EQ(first_value(QFormatId::kMxfp4, 254, 0x22), 0x1p127F);
  EXPECT_EQ(first_value(QFormatId::kMxfp4, 255, 0x11), 0x1p127F);
  EXPECT_EQ(first_value(QFormatId::kNvfp4, 0x00, 0x22), 0.0F);
  EXPECT_EQ(first_value(QFormatId::kNvfp4, 0x01, 0x22), 0x1p-9F);
  EXPECT_EQ(first_value(QFormatId::kNvfp4, 0x08, 0x22), 0x1p-6F);
  EXPECT_EQ(first_value(QFormatId::kNvfp4, 0x7e, 0x22), 448.0F);
  EXPECT_EQ(first_value(QFormatId::kNvfp4, 0x7f, 0x22), 0.0F);
  EXPECT_EQ(first_value(QFormatId::kNvfp4, 0xfe, 0x22), 448.0F);
  EXPECT_EQ(first_value(QFormatId::kNvfp4, 0xff, 0x22), 480.0F);
}

TEST(GgmlBlocks, SizesFollowFromTheTable) {
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kIq3Xxs}, 1024, 4096)->total(), 1605632U);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kIq4Xs}, 4096, 1024)->total(), 2228224U);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kQ5K}, 4096, 1024)->total(), 2883584U);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kQ5K}, 4, 128), std::nullopt);
  EXPECT_EQ(matrix_bytes({.id = QFormatId::kQ5K}, ~std::uint64_t{0} / 2, 256), std::nullopt);
}

}  // namespace
}  // namespace moepack::ggml_blocks_test
