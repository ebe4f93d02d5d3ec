// The group kernels of the affine quantizer against their scalar twins, and packing against the
// definition of the bit stream.
#include "quant/affine_group.h"

#include <array>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "formats/weights/qcodec.h"

namespace moepack::affine_group_test {
namespace {

std::vector<std::vector<float>> groups(std::size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  std::vector<std::vector<float>> all;
  for (float spread : {1e-30F, 1e-8F, 0.02F, 1.0F, 1e30F}) {
    for (int i = 0; i < 50; ++i) {
      std::normal_distribution<float> normal(i % 3 == 0 ? spread : 0.0F, spread);
      std::vector<float> group(size);
      for (float& w : group) w = normal(random);
      all.push_back(group);
    }
  }
  all.emplace_back(size, 0.0F);
  all.emplace_back(size, -0.5F);
  all.emplace_back(size, std::numeric_limits<float>::max());
  all.back()[size / 2] = std::numeric_limits<float>::lowest();
  all.emplace_back(size, std::numeric_limits<float>::denorm_min());
  // These values lie halfway between codes, where ties go to even.
  all.emplace_back(size);
  for (std::size_t i = 0; i < size; ++i) all.back()[i] = 0.5F * static_cast<float>(i);
  return all;
}

TEST(AffineGroup, Avx2GivesTheScalarBits) {
  const AffineGroupKernels* fast = avx2_affine_kernels();
  if (fast == nullptr) GTEST_SKIP() << "this processor has no AVX2";
  const AffineGroupKernels& scalar = scalar_affine_kernels();
  for (std::size_t size : {8U, 32U, 40U, 64U, 128U}) {
    for (const std::vector<float>& group : groups(size)) {
      float low = 0;
      float high = 0;
      float fast_low = 1;
      float fast_high = -1;
      scalar.range(group.data(), size, low, high);
      fast->range(group.data(), size, fast_low, fast_high);
      ASSERT_EQ(low, fast_low);
      ASSERT_EQ(high, fast_high);
      for (float max_code : {3.0F, 15.0F, 255.0F}) {
        for (float bias : {low, high, 0.0F}) {
          const float scale = (bias == low ? 1.0F : -1.0F) * (high - low) / max_code;
          std::array<std::uint8_t, 128> expected{};
          std::array<std::uint8_t, 128> found{};
          scalar.codes(group.data(), size, bias, scale, max_code, expected.data());
          fast->codes(group.data(), size, bias, scale, max_code, found.data());
          ASSERT_EQ(expected, found) << "size " << size << " bias " << bias << " scale " << scale;
        }
      }
    }
  }
}

TEST(AffineGroup, CodesAreClampedAndTiesGoToEven) {
  const std::array<float, 8> values{-3,    0.5F,  1.5F, 2.5F,
                                    14.5F, 15.5F, 99,   std::numeric_limits<float>::quiet_NaN()};
  const std::array<std::uint8_t, 8> expected{0, 0, 2, 2, 14, 15, 15, 0};
  std::array<std::uint8_t, 8> codes{};
  affine_kernels().codes(values.data(), values.size(), 0, 1, 15, codes.data());
  EXPECT_EQ(codes, expected);
}

TEST(AffineGroup, PackingIsTheBitStreamOfTheDecoder) {
  std::mt19937 random(1);
  for (std::uint32_t bits : {2U, 3U, 4U, 5U, 6U, 8U}) {
    std::vector<std::uint8_t> codes(96);
    for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random() % (1U << bits));
    std::vector<std::byte> packed(codes.size() * bits / 8 + 8, std::byte{0xee});
    pack_codes(codes, bits, packed.data());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(unpack_code(packed.data(), i, bits), codes[i]) << bits << " bits, code " << i;
    }
    EXPECT_EQ(packed[codes.size() * bits / 8], std::byte{0xee}) << "a byte beyond the codes";
  }
}

}  // namespace
}  // namespace moepack::affine_group_test
