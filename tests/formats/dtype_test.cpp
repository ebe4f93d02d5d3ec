#include "formats/base/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace moepack::dtype_test {
namespace {

TEST(DType, NamesRoundTrip) {
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_name("bf16"), std::nullopt);
}

TEST(DType, EveryF16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      EXPECT_EQ(f32_to_f16(value), bits);
    }
  }
}

TEST(DType, F16TiesGoToEven) {
  EXPECT_EQ(f32_to_f16(1.0F + 0x1p-11F), 0x3c00);      // halfway to the next: down to even
  EXPECT_EQ(f32_to_f16(1.0F + 3 * 0x1p-11F), 0x3c02);  // halfway: up to even
  EXPECT_EQ(f32_to_f16(0x1p-25F), 0x0000);             // half the smallest subnormal
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
  EXPECT_EQ(f32_to_f16(65519.99F), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0F + 0x1p-8F), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0F + 3 * 0x1p-8F), 0x3f82);
  EXPECT_EQ(f32_to_bf16(-std::numeric_limits<float>::max()), 0xff80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(f32_to_bf16(value), bits);
  }
}

}  // namespace
}  // namespace moepack::dtype_test
