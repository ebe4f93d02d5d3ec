// Formats as codes against the decoders that define them: what scale, code and zero or bias say is
// the decoded weight. The decoders have numbers of another program (ggml_blocks_test.cpp).
#include "runtime/cpu/code_rows.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/base/file.h"
#include "formats/weights/qcodec.h"
#include "tests/support/test_matrix.h"

namespace moepack::code_rows_test {
namespace {

struct CodeRow {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::vector<float> biases;
};

CodeRow unpacked(const QMatrixView& matrix, std::uint64_t row, const CodeShape& shape) {
  CodeRow result{.codes = std::vector<std::uint8_t>(matrix.cols, 255),
                 .scales = std::vector<float>(matrix.cols / shape.group, NAN),
                 .biases = std::vector<float>(shape.has_bias ? matrix.cols / shape.group : 0, NAN)};
  unpack_code_row(matrix, row, result.codes, result.scales, result.biases);
  return result;
}

float weight_of(const CodeRow& row, const CodeShape& shape, std::uint64_t c) {
  const std::uint64_t g = c / shape.group;
  const auto code = static_cast<float>(row.codes[c]);
  if (!shape.has_bias)
    return row.scales[g] * (code - std::ldexp(1.0F, static_cast<int>(shape.zero_bits)));
  const float product = row.scales[g] * code;
  return product + row.biases[g];
}

// Both operations round as those of the decoder do, so the numbers are equal. Returns the largest
// code.
std::uint32_t expect_the_weights(const QMatrixView& matrix, const CodeShape& shape) {
  std::uint32_t largest = 0;
  std::vector<float> decoded(matrix.cols);
  for (std::uint64_t r = 0; r < matrix.rows; ++r) {
    const CodeRow row = unpacked(matrix, r, shape);
    decode_row(matrix, r, decoded);
    for (std::uint64_t c = 0; c < matrix.cols; ++c) {
      largest = std::max<std::uint32_t>(largest, row.codes[c]);
      const float weight = weight_of(row, shape, c);
      if (weight == decoded[c] || (std::isnan(weight) && std::isnan(decoded[c]))) continue;
      ADD_FAILURE() << to_string(matrix.format) << " row " << r << " column " << c << ": " << weight
                    << " for " << decoded[c];
      return largest;
    }
  }
  return largest;
}

// All but our own blocks, whose codes are floats.
TEST(CodeRows, EveryQuantizedFormatHasAShape) {
  for (const WeightFormat& format : test::all_weight_formats()) {
    const bool is_own = is_block(format) && !is_ggml_block(format);
    const bool is_plain = is_own || qformat_info(format.id).kind == QKind::kPlain;
    const std::optional<CodeShape> shape = code_shape(format);
    ASSERT_EQ(shape.has_value(), !is_plain) << to_string(format);
    if (is_plain) continue;
    EXPECT_TRUE(shape->group == 16 || shape->group == 32) << to_string(format);
    EXPECT_EQ(shape->has_bias, shape->zero_bits == 0) << to_string(format);
    EXPECT_LE(shape->largest_code, 255U);
    EXPECT_GT(shape->largest_code, std::uint32_t{1} << shape->zero_bits) << to_string(format);
  }
}

// All bytes random: every code, every entry of a grid, every sign. The bound of a format's codes is
// reached.
TEST(CodeRows, AreTheDecodedWeights) {
  for (const WeightFormat& format : test::all_weight_formats()) {
    const std::optional<CodeShape> shape = code_shape(format);
    if (!shape) continue;
    std::uint32_t largest = 0;
    for (test::Values values :
         {test::Values::kUsual, test::Values::kSubnormal, test::Values::kHuge}) {
      const test::TestMatrix matrix(format, 6, 2048, values, 1, 17);
      largest = std::max(largest, expect_the_weights(matrix.view(), *shape));
    }
    EXPECT_EQ(largest, shape->largest_code) << to_string(format);
  }
}

// Blocks as ggml's own quantizer makes them, and with scales of any bits.
TEST(CodeRows, AreTheWeightsOfGgmlsBlocks) {
  for (const QFormatInfo& info : qformats()) {
    if (!is_ggml_block({.id = info.id})) continue;
    std::string file(info.name);
    if (file.ends_with("_k")) file.back() = 'K';
    const std::filesystem::path path =
        std::filesystem::path(MOEPACK_SOURCE_DIR) / "tests/golden/ggml" / (file + ".bin");
    const Result<std::string> bytes = read_text_file(path, 1U << 20);
    ASSERT_TRUE(bytes.is_ok()) << bytes.status().message();
    const std::uint64_t blocks = bytes.value().size() / info.block_bytes;
    ASSERT_GE(blocks, 32U);
    const QMatrixView matrix{.format = {.id = info.id},
                             .rows = 4,
                             .cols = blocks / 4 * info.block_values,
                             .data = affine_components<const std::byte*>(
                                 reinterpret_cast<const std::byte*>(bytes.value().data()))};
    expect_the_weights(matrix, *code_shape(matrix.format));
  }
}

}  // namespace
}  // namespace moepack::code_rows_test
