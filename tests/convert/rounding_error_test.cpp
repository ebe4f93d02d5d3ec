#include "convert/verify/rounding_error.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "formats/weights/qcodec.h"
#include "quant/affine.h"

namespace moepack::rounding_error_test {
namespace {

// A row rounded by the converter's rule, with its bytes.
class EncodedRow {
 public:
  EncodedRow(const WeightFormat& format, std::span<const float> row)
      : format_(format), decoded_(row.size()) {
    const MatrixBytes bytes = matrix_bytes(format, 1, row.size()).value();
    codes_.resize(bytes.codes());
    scales_.resize(bytes[Component::kScales]);
    biases_.resize(bytes[Component::kBiases]);
    encode_affine_row(format, row, {.codes = codes_, .scales = scales_, .biases = biases_});
  }

  RoundingError against(std::span<const float> source) {
    const QMatrixView view{
        .format = format_,
        .rows = 1,
        .cols = decoded_.size(),
        .data = affine_components<const std::byte*>(codes_.data(), scales_.data(), biases_.data())};
    decode_row(view, 0, decoded_);
    RoundingError error;
    add_block({.values = decoded_, .view = view}, 0, source, true, error);
    return error;
  }
  std::vector<std::byte>& codes() { return codes_; }
  std::uint32_t code(std::size_t i) const {
    return unpack_code(codes_.data(), i, qformat_info(format_.id).bits);
  }
  float scale(std::size_t group) const {
    return std::fabs(load_plain_float(format_.scale_type, scales_.data() + 2 * group));
  }
  float decoded(std::size_t i) const { return decoded_[i]; }

 private:
  WeightFormat format_;
  std::vector<std::byte> codes_;
  std::vector<std::byte> scales_;
  std::vector<std::byte> biases_;
  std::vector<float> decoded_;
};

std::vector<float> random_row(std::mt19937& random, int kind, std::size_t size) {
  std::normal_distribution<float> normal(0, 0.05F);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> row(size);
  const float center = uniform(random) * (kind % 3 == 0 ? 0.0F : 4.0F);
  for (float& w : row) {
    switch (kind % 5) {
      case 0:
        w = normal(random);
        break;
      case 1:
        w = center + 0.1F * uniform(random);
        break;
      case 2:
        w = std::pow(uniform(random), 9.0F);
        break;
      case 3:
        w = center;
        break;
      default:
        w = uniform(random) * 1e-7F * (kind % 2 == 0 ? 1.0F : 30.0F);
    }
  }
  return row;
}

// Whatever the group, the converter's rounding stays within the limits, for every width and type.
TEST(RoundingError, LimitsHoldForTheConvertersRule) {
  std::mt19937 random(7);
  for (QFormatId id : {QFormatId::kQ2, QFormatId::kQ3, QFormatId::kQ4, QFormatId::kQ5,
                       QFormatId::kQ6, QFormatId::kQ8}) {
    for (DType type : {DType::kBf16, DType::kF16}) {
      for (int kind = 0; kind < 3000; ++kind) {
        const WeightFormat format{.id = id, .group_size = 32, .scale_type = type};
        const std::vector<float> row = random_row(random, kind, 64);
        const RoundingError error = EncodedRow(format, row).against(row);
        ASSERT_EQ(error.beyond, 0U)
            << to_string(format) << " kind " << kind % 5 << ": " << error.first_source << " became "
            << error.first_stored << ", limit " << error.first_limit;
        ASSERT_EQ(error.elements, row.size());
      }
    }
  }
}

// The far edge of a group can be a whole step off: half a step would refuse sound packs.
TEST(RoundingError, TheFarEdgeIsOffByMoreThanHalfAStep) {
  const WeightFormat format{.id = QFormatId::kQ2, .group_size = 32};
  std::vector<float> row(32, 0.0F);
  row[0] = -1.52F;  // 1.52 steps of 1 from 0, rounded to 2: the step shrinks to 0.76
  row[1] = 1.48F;   // 3.95 of those from the edge, but the highest code is 3
  EncodedRow encoded(format, row);
  EXPECT_EQ(encoded.against(row).beyond, 0U);
  EXPECT_EQ(encoded.code(1), 3U);
  EXPECT_GT(std::fabs(encoded.decoded(1) - row[1]), 0.9F * encoded.scale(0));
}

// Another code than the rule's is farther away than rounding explains.
TEST(RoundingError, AnotherCodeIsBeyond) {
  std::mt19937 random(3);
  for (QFormatId id : {QFormatId::kQ3, QFormatId::kQ4, QFormatId::kQ6}) {
    const WeightFormat format{.id = id, .group_size = 64};
    const std::uint32_t bits = qformat_info(id).bits;
    const std::vector<float> row = random_row(random, 0, 128);
    for (std::size_t i = 0; i < row.size(); ++i) {
      EncodedRow encoded(format, row);
      const std::uint32_t code = encoded.code(i);
      const std::uint32_t other = code >= 2 ? code - 2 : code + 2;
      std::vector<std::byte> codes(encoded.codes().size());
      for (std::size_t k = 0; k < row.size(); ++k) {
        pack_code(codes.data(), k, bits, k == i ? other : encoded.code(k));
      }
      encoded.codes() = codes;
      const RoundingError error = encoded.against(row);
      ASSERT_EQ(error.beyond, 1U) << i;
      EXPECT_EQ(error.first_element, i);
    }
  }
}

TEST(RoundingError, PlainFormatsMayBeOffByHalfAUnit) {
  const WeightFormat format{.id = QFormatId::kBf16};
  const std::vector<float> source{1.0F + 0x1p-9F, 3.0e38F, 0x1p-130F, INFINITY, 0.0F, -2.5F};
  std::vector<std::byte> bytes(source.size() * 2);
  std::vector<float> stored(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    store_le(bytes.data() + 2 * i, f32_to_bf16(source[i]));
    stored[i] = bf16_to_f32(f32_to_bf16(source[i]));
  }
  const QMatrixView view{.format = format,
                         .rows = 1,
                         .cols = source.size(),
                         .data = affine_components<const std::byte*>(bytes.data())};
  RoundingError error;
  add_block({.values = stored, .view = view}, 0, source, true, error);
  EXPECT_EQ(error.beyond, 0U);
  stored[5] = -2.4F;
  stored[3] = 1.0F;
  add_block({.values = stored, .view = view}, 100, source, true, error);
  EXPECT_EQ(error.beyond, 2U);
  EXPECT_EQ(error.first_element, 103U);
  EXPECT_TRUE(std::isinf(error.largest));
}

}  // namespace
}  // namespace moepack::rounding_error_test
