// Blocks made of affine codes decode to the same float32 values; what float16 cannot hold is found.
#include "formats/weights/affine_blocks.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "formats/weights/qcodec.h"

namespace moepack::affine_blocks_test {
namespace {

// Rows of random codes; scales and biases from `values`.
struct Matrix {
  WeightFormat format;
  std::uint64_t rows;
  std::uint64_t cols;
  std::vector<std::byte> weight;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;

  QMatrixView view(bool with_codes = true) const {
    return {.format = format,
            .rows = rows,
            .cols = cols,
            .data = affine_components<const std::byte*>(with_codes ? weight.data() : nullptr,
                                                        scales.data(), biases.data())};
  }
  void set(std::vector<std::byte>& at, std::uint64_t group, float value) const {
    store_le(at.data() + 2 * group,
             format.scale_type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value));
  }
};

Matrix random_affine(const WeightFormat& format, std::uint64_t rows, std::uint64_t cols) {
  Matrix m{.format = format, .rows = rows, .cols = cols, .weight = {}, .scales = {}, .biases = {}};
  const MatrixBytes bytes = *matrix_bytes(format, rows, cols);
  m.weight.resize(bytes.codes());
  m.scales.resize(bytes[Component::kScales]);
  m.biases.resize(bytes[Component::kBiases]);
  std::mt19937 random(format.group_size + static_cast<unsigned>(format.id));
  for (std::byte& b : m.weight) b = static_cast<std::byte>(random());
  std::uniform_real_distribution<float> spread(-0.2F, 0.2F);
  for (std::uint64_t g = 0; g < bytes[Component::kScales] / 2; ++g) {
    m.set(m.scales, g, spread(random));  // negative ones too
    m.set(m.biases, g, spread(random));
  }
  return m;
}

std::vector<float> decoded_blocks(const Matrix& m, std::uint64_t row, QFormatId target) {
  std::vector<std::byte> blocks(matrix_bytes({.id = target}, 1, m.cols)->codes());
  EXPECT_FALSE(encode_affine_blocks(m.view(), row, target, blocks).has_value());
  std::vector<float> values(m.cols);
  decode_row({.format = {.id = target},
              .rows = 1,
              .cols = m.cols,
              .data = affine_components<const std::byte*>(blocks.data())},
             0, values);
  return values;
}

TEST(AffineBlocks, HoldTheSameValues) {
  for (std::uint32_t bits : {2U, 3U, 4U, 5U}) {
    for (std::uint32_t group : {32U, 64U, 128U}) {
      for (DType scales : {DType::kBf16, DType::kF16}) {
        const WeightFormat format{
            .id = *affine_qformat(bits), .group_size = group, .scale_type = scales};
        const Matrix m = random_affine(format, 3, 256);
        const QFormatId target = *affine_block_format(format);
        EXPECT_EQ(target, bits == 5 ? QFormatId::kQ51 : QFormatId::kQ41);
        for (std::uint64_t row = 0; row < m.rows; ++row) {
          std::vector<float> wanted(m.cols);
          decode_row(m.view(), row, wanted);
          EXPECT_EQ(decoded_blocks(m, row, target), wanted) << to_string(format);
          EXPECT_EQ(decoded_blocks(m, row, QFormatId::kQ51), wanted) << to_string(format);
          EXPECT_FALSE(find_inexact_group(m.view(false), row).has_value());
        }
      }
    }
  }
}

TEST(AffineBlocks, WiderCodesHaveNoBlocks) {
  for (std::uint32_t bits : {6U, 8U}) {
    EXPECT_FALSE(affine_block_format({.id = *affine_qformat(bits), .group_size = 64}).has_value());
  }
  EXPECT_FALSE(affine_block_format({.id = QFormatId::kBf16}).has_value());
}

class InexactBlocks : public testing::Test {
 protected:
  // The group of row 1 that is found, or -1, by both functions.
  int found(bool is_scale) const {
    const auto inexact = find_inexact_group(m_.view(), 1);
    std::vector<std::byte> blocks(matrix_bytes({.id = QFormatId::kQ41}, 1, m_.cols)->codes());
    const auto encoded = encode_affine_blocks(m_.view(), 1, QFormatId::kQ41, blocks);
    EXPECT_EQ(inexact.has_value(), encoded.has_value());
    if (!inexact.has_value()) return -1;
    EXPECT_EQ(inexact->group, encoded->group);
    EXPECT_EQ(inexact->is_scale, is_scale);
    return static_cast<int>(inexact->group);
  }
  // Groups 4 to 7 are those of row 1.
  void clear_codes_of_group_6() { std::fill_n(m_.weight.begin() + 6 * 32, 32, std::byte{0}); }
  Matrix m_ = random_affine({.id = QFormatId::kQ4, .group_size = 64}, 2, 256);
};

TEST_F(InexactBlocks, SmallAndLargeValuesAreFound) {
  EXPECT_EQ(found(true), -1);
  for (const float value : {1e-7F, 65536.0F, -3e-6F, std::nanf("")}) {
    m_.set(m_.scales, 6, value);
    EXPECT_EQ(found(true), 2) << value;
  }
  m_.set(m_.scales, 6, 0x1p-17F * 1.9921875F);  // the smallest with any last bits
  EXPECT_EQ(found(true), -1);
  m_.set(m_.scales, 6, 0x1p-24F);  // the smallest of all
  EXPECT_EQ(found(true), -1);
  m_.set(m_.biases, 5, 0x1.02p-18F);
  EXPECT_EQ(found(false), 1);
}

TEST_F(InexactBlocks, AScaleOfCodesThatAreAllZeroDoesNotMatter) {
  clear_codes_of_group_6();
  m_.set(m_.scales, 6, 1e-7F);
  EXPECT_EQ(found(true), -1);
  EXPECT_TRUE(find_inexact_group(m_.view(false), 1).has_value());  // without codes it may
  std::vector<float> wanted(m_.cols);
  decode_row(m_.view(), 1, wanted);
  EXPECT_EQ(decoded_blocks(m_, 1, QFormatId::kQ41), wanted);
  m_.weight[6 * 32 + 31] = std::byte{0x10};  // the last code
  EXPECT_EQ(found(true), 2);
}

}  // namespace
}  // namespace moepack::affine_blocks_test
