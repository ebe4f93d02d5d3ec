#include "formats/weights/qcodec.h"

#include <bit>
#include <vector>

#include <gtest/gtest.h>

#include "formats/base/bytes.h"
#include "tests/support/test_matrix.h"

namespace moepack::qcodec_test {
namespace {

float load_scale(const WeightFormat& format, const std::byte* at) {
  return load_plain_float(format.scale_type, at);
}

// decode_row unpacks many codes at a time; the definition takes them one by one.
TEST(QCodec, DecodeRowIsTheDefinitionBitForBit) {
  std::uint32_t seed = 1;
  for (const WeightFormat& format : test::all_weight_formats()) {
    const QFormatInfo& info = qformat_info(format.id);
    if (info.kind == QKind::kBlock) continue;  // formats/ggml_blocks_test.cpp
    for (std::uint64_t cols : {33U, 128U, 384U}) {
      if (!matrix_bytes(format, 5, cols).has_value()) continue;
      for (std::size_t shift : {0U, 1U}) {
        const test::TestMatrix matrix(format, 5, cols, test::Values::kUsual, shift, ++seed);
        const QMatrixView& w = matrix.view();
        std::vector<float> row(cols + 1, -77.0F);  // longer than needed: the rest stays
        for (std::uint64_t r = 0; r < w.rows; ++r) {
          decode_row(w, r, row);
          EXPECT_EQ(row.back(), -77.0F);
          for (std::uint64_t c = 0; c < cols; ++c) {
            float expected = 0;
            if (is_affine(format)) {
              const std::uint64_t at = 2 * (r * (cols / format.group_size) + c / format.group_size);
              const std::uint32_t code =
                  unpack_code(w.codes() + r * cols * info.bits / 8, c, info.bits);
              const float product = static_cast<float>(code) * load_scale(format, w.scales() + at);
              expected = product + load_scale(format, w.biases() + at);
            } else {
              expected = load_plain_float(info.storage, w.codes() + (r * cols + c) * info.bits / 8);
            }
            ASSERT_EQ(std::bit_cast<std::uint32_t>(row[c]), std::bit_cast<std::uint32_t>(expected))
                << to_string(format) << " row " << r << " col " << c;
          }
        }
      }
    }
  }
}

// Subnormal numbers, infinities and NaN of all 65,536 half floats come out as they are.
TEST(QCodec, EveryHalfFloatDecodes) {
  for (QFormatId id : {QFormatId::kF16, QFormatId::kBf16}) {
    std::vector<std::byte> bytes(2 * 65536);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      store_le(bytes.data() + std::size_t{i} * 2, static_cast<std::uint16_t>(i));
    }
    const QMatrixView w{.format = {.id = id},
                        .rows = 1,
                        .cols = 65536,
                        .data = affine_components<const std::byte*>(bytes.data())};
    std::vector<float> row(65536);
    decode_row(w, 0, row);
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto half = static_cast<std::uint16_t>(i);
      const float expected = id == QFormatId::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(row[i]), std::bit_cast<std::uint32_t>(expected)) << i;
    }
  }
}

}  // namespace
}  // namespace moepack::qcodec_test
