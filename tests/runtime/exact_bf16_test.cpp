#include "runtime/model/exact_bf16.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/base/dtype.h"
#include "runtime/model/kernels.h"
#include "tests/support/cpu_levels.h"
#include "tests/support/random_values.h"

namespace moepack::exact_bf16_test {
namespace {

using test::random_values;

constexpr std::uint64_t kRows = 37;
constexpr std::uint64_t kCols = 2100;  // more than a tile of columns, not a multiple of any vector

// The nearest number that loses nothing in bfloat16, towards zero.
float cut(float value) {
  return bf16_to_f32(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
}

std::vector<float> exact_values() {
  std::vector<float> values = random_values(kRows * kCols, 1);
  for (float& value : values) value = cut(value);
  values[0] = cut(std::numeric_limits<float>::max());
  values[1] = -0.0F;
  values[2] = cut(1e-40F);  // subnormal
  return values;
}

QMatrixView view_of(std::vector<float>& values) {
  QMatrixView view{.format = {.id = QFormatId::kF32}, .rows = kRows, .cols = kCols};
  view.data[Component::kCodes] = reinterpret_cast<const std::byte*>(values.data());
  return view;
}

std::vector<float> product(const Kernels& kernels, const QMatrixView& w, std::size_t tokens) {
  const std::vector<float> x = random_values(tokens * kCols, 2);
  std::vector<float> y(tokens * kRows);
  std::vector<float> scratch(matmul_scratch_floats(kCols));
  kernels.matmul(w, x.data(), kCols, tokens, 0, kRows, y.data(), kRows, scratch);
  return y;
}

class ExactBf16 : public testing::TestWithParam<CpuLevel> {};

TEST_P(ExactBf16, ProductsKeepTheirBits) {
  const Result<const Kernels*> found = cpu_kernels(GetParam());
  if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
  const Kernels& kernels = *found.value();
  std::vector<float> values = exact_values();
  std::vector<float> narrowed = values;
  ModelWeights weights;
  weights.layers.resize(1);
  weights.layers[0].moe.router = view_of(narrowed);
  ThreadPool pool(2);
  narrow_exact_floats(weights, pool);
  const QMatrixView& router = weights.layers[0].moe.router;
  ASSERT_EQ(router.format.id, QFormatId::kBf16);
  for (const std::size_t tokens : {1U, 3U, 16U, 40U}) {
    const std::vector<float> before = product(kernels, view_of(values), tokens);
    const std::vector<float> after = product(kernels, router, tokens);
    EXPECT_EQ(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)), 0)
        << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, ExactBf16, testing::ValuesIn(test::levels_to_test()),
                         [](const testing::TestParamInfo<CpuLevel>& level) {
                           return std::string(cpu_level_name(level.param));
                         });

TEST(NarrowExactFloats, OneOtherValueKeepsTheMatrix) {
  std::vector<float> values = exact_values();
  values.back() = 1.0F + std::numeric_limits<float>::epsilon();
  const std::vector<float> before = values;
  std::vector<float> other = exact_values();
  ModelWeights weights;
  weights.layers.resize(2);
  weights.layers[0].moe.router = view_of(values);
  weights.layers[1].moe.router = view_of(other);
  ThreadPool pool(2);
  narrow_exact_floats(weights, pool);
  EXPECT_EQ(weights.layers[0].moe.router.format.id, QFormatId::kF32);
  EXPECT_EQ(std::memcmp(values.data(), before.data(), before.size() * sizeof(float)), 0);
  EXPECT_EQ(weights.layers[1].moe.router.format.id, QFormatId::kBf16);
}

}  // namespace
}  // namespace moepack::exact_bf16_test
