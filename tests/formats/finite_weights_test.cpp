// Weights that are no numbers are found exactly where the decoders make them.
#include "formats/weights/finite_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "formats/weights/ggml_blocks.h"

namespace moepack::finite_weights_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::mt19937& random, std::size_t size) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

bool every_value_is_finite(DType dtype, const Bytes& bytes) {
  const std::size_t width = dtype == DType::kF32 ? 4 : 2;
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    if (!std::isfinite(load_plain_float(dtype, bytes.data() + at))) return false;
  }
  return true;
}

// One value after another in every place of a word, behind and before others.
TEST(FiniteWeights, EveryHalfOfSixteenBits) {
  for (DType dtype : {DType::kF16, DType::kBf16}) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      Bytes bytes(14, std::byte{0});
      const std::size_t at = 2 * (bits % 7);
      bytes[at] = static_cast<std::byte>(bits);
      bytes[at + 1] = static_cast<std::byte>(bits >> 8);
      const bool finite = every_value_is_finite(dtype, bytes);
      ASSERT_EQ(floats_are_finite(dtype, bytes), finite) << dtype_name(dtype) << " " << bits;
    }
  }
}

// Also the largest numbers side by side: nothing is carried from one to the next.
TEST(FiniteWeights, FloatsAtAnyPlaceOfAnySize) {
  std::mt19937 random(1);
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    const std::size_t width = dtype == DType::kF32 ? 4 : 2;
    const std::uint32_t infinity = dtype == DType::kF32   ? 0x7f800000
                                   : dtype == DType::kF16 ? 0x7c00
                                                          : 0x7f80;
    const auto put = [&](Bytes& bytes, std::size_t i, std::uint32_t bits) {
      for (std::size_t b = 0; b < width; ++b) {
        bytes[i * width + b] = static_cast<std::byte>(bits >> (8 * b));
      }
    };
    for (std::size_t count = 0; count < 600; ++count) {
      Bytes bytes(count * width);
      for (std::size_t i = 0; i < count; ++i) put(bytes, i, infinity - 1);
      ASSERT_TRUE(floats_are_finite(dtype, bytes)) << count;
      if (count == 0) continue;
      put(bytes, random() % count, infinity + static_cast<std::uint32_t>(random() % 3));
      ASSERT_FALSE(floats_are_finite(dtype, bytes)) << count;
    }
  }
}

TEST(FiniteWeights, BlocksAsTheDecoderSays) {
  std::mt19937 random(2);
  for (const QFormatInfo& info : qformats()) {
    if (info.kind != QKind::kBlock) continue;
    const GgmlBlockDecoder decode = block_decoder(info.id);
    std::vector<float> values(info.block_values);
    std::size_t bad = 0;
    for (int round = 0; round < 4000; ++round) {
      Bytes block = random_bytes(random, info.block_bytes);
      // Half of them without a code or scale that is no number.
      const bool is_own = !is_ggml_block({.id = info.id});
      for (std::byte& b : block) {
        if (is_own && round % 2 == 0) b &= std::byte{0x3f};
      }
      if (info.id == QFormatId::kMxfp4 && round % 2 == 0) block[0] |= std::byte{0xf0};
      decode(block.data(), values.data());
      bool finite = true;
      for (float value : values) finite = finite && std::isfinite(value);
      bad += finite ? 0 : 1;
      ASSERT_EQ(blocks_are_finite(info.id, block), finite) << info.name << " " << round;
    }
    EXPECT_EQ(bad > 20, info.id != QFormatId::kNvfp4) << info.name << " " << bad;
  }
}

TEST(FiniteWeights, OneBlockAmongMany) {
  const QFormatInfo& info = qformat_info(QFormatId::kQ80);
  Bytes blocks(std::size_t{100} * info.block_bytes);
  EXPECT_TRUE(weights_are_finite({.id = QFormatId::kQ80}, blocks));
  blocks[99 * info.block_bytes + 1] = std::byte{0x7c};
  EXPECT_FALSE(weights_are_finite({.id = QFormatId::kQ80}, blocks));
  EXPECT_TRUE(weights_are_finite({.id = QFormatId::kQ4, .group_size = 64}, blocks));
}

}  // namespace
}  // namespace moepack::finite_weights_test
