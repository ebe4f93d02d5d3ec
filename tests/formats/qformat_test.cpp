#include "formats/weights/qformat.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "formats/weights/expert_layout.h"
#include "formats/weights/qcodec.h"

namespace moepack::qformat_test {
namespace {

WeightFormat affine(std::uint32_t bits, std::uint32_t group) {
  return {.id = *affine_qformat(bits), .group_size = group};
}

TEST(QFormat, NamesRoundTrip) {
  for (const QFormatInfo& info : qformats()) EXPECT_EQ(qformat_from_name(info.name), info.id);
  EXPECT_EQ(qformat_from_name("q7"), std::nullopt);
}

// The sizes and offsets that the flash-moe engines type by hand.
TEST(ExpertLayout, MatchesThePublishedRecords) {
  const auto uniform = [](std::uint64_t h, std::uint64_t m, WeightFormat f) {
    return make_expert_layout(h, m, {f, f, f}).value();
  };
  const ExpertLayout big = uniform(4096, 1024, affine(4, 64));
  EXPECT_EQ(big.record_bytes, 7077888U);
  EXPECT_EQ(big.of(Projection::kGate).offset_of(Component::kScales), 2097152U);
  EXPECT_EQ(big.of(Projection::kGate).offset_of(Component::kBiases), 2228224U);
  EXPECT_EQ(big.of(Projection::kUp).offset, 2359296U);
  EXPECT_EQ(big.of(Projection::kUp).offset_of(Component::kBiases), 4587520U);
  EXPECT_EQ(big.of(Projection::kDown).offset, 4718592U);
  EXPECT_EQ(big.of(Projection::kDown).offset_of(Component::kScales), 6815744U);
  EXPECT_EQ(big.of(Projection::kDown).offset_of(Component::kBiases), 6946816U);
  EXPECT_EQ(uniform(4096, 1024, affine(2, 64)).record_bytes, 3932160U);
  EXPECT_EQ(uniform(2048, 512, affine(4, 64)).record_bytes, 1769472U);
  EXPECT_EQ(uniform(2048, 512, affine(2, 64)).record_bytes, 983040U);
  EXPECT_EQ(uniform(2048, 512, {}).record_bytes, 6291456U);
}

TEST(QFormat, RefusesShapesItCannotHold) {
  EXPECT_EQ(matrix_bytes(affine(4, 64), 8, 96), std::nullopt);
  EXPECT_EQ(matrix_bytes(affine(4, 48), 8, 96), std::nullopt);
  EXPECT_EQ(matrix_bytes(affine(4, 64), 0, 64), std::nullopt);
  EXPECT_EQ(matrix_bytes({}, std::uint64_t{1} << 40, std::uint64_t{1} << 40), std::nullopt);
  EXPECT_EQ(matrix_bytes({}, 1, ~std::uint64_t{0}), std::nullopt);
}

TEST(QCodec, CodesAreALittleEndianBitStream) {
  for (std::uint32_t bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
    std::vector<std::byte> row(64 * bits / 8);
    for (std::uint64_t i = 0; i < 64; ++i) {
      pack_code(row.data(), i, bits, static_cast<std::uint32_t>(i * 7) & ((1U << bits) - 1U));
    }
    for (std::uint64_t i = 0; i < 64; ++i) {
      // Bit by bit, straight from the rule: element i occupies bits [i*bits, (i+1)*bits).
      std::uint32_t expected = 0;
      for (std::uint32_t b = 0; b < bits; ++b) {
        const std::uint64_t at = i * bits + b;
        expected |= (std::to_integer<std::uint32_t>(row[at / 8]) >> (at % 8) & 1U) << b;
      }
      EXPECT_EQ(expected, static_cast<std::uint32_t>(i * 7) & ((1U << bits) - 1U));
      EXPECT_EQ(unpack_code(row.data(), i, bits), expected);
    }
  }
}

}  // namespace
}  // namespace moepack::qformat_test
