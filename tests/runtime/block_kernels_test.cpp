// SIMD kernels of ggml's blocks at the edges of their fields: decoding against the scalar decoders
// bit for bit, products against the same in double. What random blocks of every shape show stands
// in kernel_twin_test.cpp.
#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/weights/qcodec.h"
#include "runtime/cpu/block_kernels.h"
#include "runtime/model/kernels.h"
#include "tests/support/exact_product.h"
#include "tests/support/guarded_bytes.h"
#include "tests/support/test_matrix.h"

#if defined(__x86_64__)

namespace moepack::block_kernels_test {
namespace {

using test::exact_product;
using test::ExactProduct;
using test::GuardedBytes;

constexpr QFormatId kWithKernels[] = {
    QFormatId::kQ40,    QFormatId::kQ41,   QFormatId::kQ50,  QFormatId::kQ51,    QFormatId::kQ80,
    QFormatId::kQ2K,    QFormatId::kQ3K,   QFormatId::kQ4K,  QFormatId::kQ5K,    QFormatId::kQ6K,
    QFormatId::kIq2Xxs, QFormatId::kIq2Xs, QFormatId::kIq2S, QFormatId::kIq3Xxs, QFormatId::kIq3S,
    QFormatId::kIq4Nl,  QFormatId::kIq4Xs, QFormatId::kMxfp4};

const BlockKernel* find_kernel(CpuLevel level, QFormatId id) {
  const bool wide = level >= CpuLevel::kAvx512;
  const BlockKernel* kernel = wide ? avx512_legacy_blocks(id) : avx2_legacy_blocks(id);
  if (kernel == nullptr) kernel = wide ? avx512_k_blocks(id) : avx2_k_blocks(id);
  if (kernel == nullptr) kernel = wide ? avx512_grid_blocks(id) : avx2_grid_blocks(id);
  return kernel;
}

std::vector<std::size_t> scale_fields(QFormatId id) {
  return id == QFormatId::kMxfp4 ? std::vector<std::size_t>() : test::half_fields(id);
}

// How the bytes around the scales are filled.
enum class Fill { kZeros, kOnes, kRandom };

// A row of blocks; block i has the scale number `step` * i + `first` in each of its fields (MXFP4:
// its low byte).
GuardedBytes make_blocks(QFormatId id, std::size_t count, Fill fill, std::uint32_t first,
                         std::uint32_t step) {
  const QFormatInfo& info = qformat_info(id);
  GuardedBytes bytes(count * info.block_bytes);
  std::mt19937 random(first + 77 * step);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes.data()[i] = fill == Fill::kZeros  ? std::byte{0}
                      : fill == Fill::kOnes ? std::byte{0xff}
                                            : static_cast<std::byte>(random() & 0xffU);
  }
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* block = bytes.data() + i * info.block_bytes;
    const auto number = static_cast<std::uint32_t>(first + step * i);
    if (id == QFormatId::kMxfp4) block[0] = static_cast<std::byte>(number & 0xffU);
    for (std::size_t at : scale_fields(id)) {
      store_le(block + at, static_cast<std::uint16_t>(number + 0x1234U * at));
    }
  }
  return bytes;
}

class BlockKernels : public testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = cpu_kernels(GetParam());
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = found.value();
  }
  const Kernels* kernels_ = nullptr;
};

TEST_P(BlockKernels, ExistForTheseFormatsAlone) {
  for (const QFormatInfo& info : qformats()) {
    const bool expected = std::find(std::begin(kWithKernels), std::end(kWithKernels), info.id) !=
                          std::end(kWithKernels);
    const BlockKernel* kernel = find_kernel(GetParam(), info.id);
    ASSERT_EQ(kernel != nullptr, expected) << info.name;
    if (kernel != nullptr) {
      EXPECT_EQ(kernel->id, info.id);
    }
  }
}

bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Scales through the whole range of their type: zeros, subnormal numbers, negative ones, infinity
// and what is no number. A row ends at a guard page.
TEST_P(BlockKernels, DecodeWhatTheScalarDecodersDo) {
  constexpr std::uint32_t kStep = 7;
  for (QFormatId id : kWithKernels) {
    const QFormatInfo& info = qformat_info(id);
    const BlockKernel* kernel = find_kernel(GetParam(), id);
    const std::size_t count = 512 / info.block_values;
    std::vector<float> scalar(512);
    for (Fill fill : {Fill::kZeros, Fill::kOnes, Fill::kRandom}) {
      for (std::uint32_t first = 0; first < 65536; first += kStep * 16) {
        const GuardedBytes bytes = make_blocks(id, count, fill, first, kStep);
        const QMatrixView w{{.id = id}, 1, 512, bytes.data(), nullptr, nullptr};
        test::GuardedFloats decoded(512);
        decode_row(w, 0, scalar);
        kernel->decode(w, 0, 0, 512, decoded.data());
        for (std::size_t c = 0; c < 512; ++c) {
          ASSERT_TRUE(same_bits(decoded[c], scalar[c]))
              << info.name << " scale " << first << " weight " << c << ": " << decoded[c] << " for "
              << scalar[c];
        }
      }
    }
  }
}

// Columns in the middle of a row, and an odd number of the blocks that AVX-512 takes in pairs.
TEST_P(BlockKernels, DecodeAnyColumns) {
  for (QFormatId id : kWithKernels) {
    const std::uint64_t block = qformat_info(id).block_values;
    const std::uint64_t cols = 7 * block;
    const GuardedBytes bytes = make_blocks(id, 14, Fill::kRandom, 0x2c00, 3);
    const QMatrixView w{{.id = id}, 2, cols, bytes.data(), nullptr, nullptr};
    std::vector<float> scalar(cols);
    decode_row(w, 1, scalar);
    for (std::uint64_t first = 0; first < cols; first += block) {
      for (std::uint64_t count = block; first + count <= cols; count += block) {
        test::GuardedFloats decoded(count);
        find_kernel(GetParam(), id)->decode(w, 1, first, count, decoded.data());
        for (std::size_t c = 0; c < count; ++c) {
          ASSERT_TRUE(same_bits(decoded[c], scalar[first + c]))
              << qformat_info(id).name << " [" << first << ", +" << count << ") at " << c;
        }
      }
    }
  }
}

// The bound of runtime/model/kernels.h, with all codes and scales at an end of their range, and
// inputs of very different sizes.
TEST_P(BlockKernels, ProductsOfExtremeFields) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (QFormatId id : kWithKernels) {
    const QFormatInfo& info = qformat_info(id);
    const std::size_t cols = std::max<std::size_t>(info.block_values, 96);
    const std::size_t row_blocks = cols / info.block_values;
    const bool is_power = id == QFormatId::kMxfp4;
    for (Fill fill : {Fill::kZeros, Fill::kOnes, Fill::kRandom}) {
      // Binary16: +-0, the smallest and largest subnormal, +-1, +-the largest number but one.
      for (std::uint32_t scale :
           {0x0000U, 0x8000U, 0x0001U, 0x03ffU, 0x3c00U, 0xbc00U, 0x7bfeU, 0xfbfeU}) {
        const std::size_t rows = 3;
        GuardedBytes bytes = make_blocks(id, rows * row_blocks, fill, scale, 0);
        for (std::size_t i = 0; i < rows * row_blocks; ++i) {
          std::byte* block = bytes.data() + i * info.block_bytes;
          if (is_power) block[0] = static_cast<std::byte>((scale >> 8) * 240 / 255);
          for (std::size_t at : scale_fields(id)) {
            store_le(block + at, static_cast<std::uint16_t>(scale));
          }
        }
        const QMatrixView w{{.id = id}, rows, cols, bytes.data(), nullptr, nullptr};
        test::GuardedFloats x(2 * cols);
        for (std::size_t i = 0; i < 2 * cols; ++i) {
          x[i] = std::ldexp(uniform(random), static_cast<int>(random() % 40) - 36);
        }
        const ExactProduct exact = exact_product(w, x.data(), cols, 2);
        test::GuardedFloats y(2 * rows);
        test::GuardedFloats scratch(matmul_scratch_floats(cols), NAN);
        kernels_->matmul(w, x.data(), cols, 2, 0, rows, y.data(), rows, scratch.span());
        const bool in_integers = GetParam() == CpuLevel::kAvx512Vnni;
        for (std::size_t i = 0; i < 2 * rows; ++i) {
          ASSERT_NEAR(static_cast<double>(y[i]), exact.value[i],
                      test::product_bound(exact, i, cols, in_integers))
              << info.name << " scale " << scale << " fill " << static_cast<int>(fill);
        }
      }
    }
  }
}

// ---- Products in integers -----------------------------------------------------------------------

const DigitKernel* find_digits(QFormatId id) {
  const DigitKernel* kernel = legacy_digits(id);
  return kernel != nullptr ? kernel : k_digits(id);
}

class BlockDigits : public testing::Test {
 protected:
  void SetUp() override {
    const Result<const Kernels*> found = cpu_kernels(CpuLevel::kAvx512Vnni);
    if (!found.is_ok()) GTEST_SKIP() << "SKIPPED: " << found.status().message();
    kernels_ = found.value();
    floats_ = cpu_kernels(CpuLevel::kAvx512).value();
  }

  static std::vector<float> multiply(const Kernels& kernels, const QMatrixView& w,
                                     test::GuardedFloats& x, std::size_t tokens) {
    std::vector<float> y(tokens * w.rows);
    test::GuardedFloats scratch(matmul_scratch_floats(w.cols), NAN);
    kernels.matmul(w, x.data(), w.cols, tokens, 0, w.rows, y.data(), w.rows, scratch.span());
    return y;
  }

  // The integer kernel's own answer: whether it takes these inputs.
  static bool takes(QFormatId id, const QMatrixView& w, test::GuardedFloats& x) {
    std::vector<float> y(w.rows);
    std::vector<float> scratch(matmul_scratch_floats(w.cols));
    return find_digits(id)->multiply(
        {w, x.data(), w.cols, 1, 0, w.rows, y.data(), w.rows, align_scratch(scratch)});
  }

  const Kernels* kernels_ = nullptr;
  const Kernels* floats_ = nullptr;
};

constexpr QFormatId kInIntegers[] = {QFormatId::kQ40, QFormatId::kQ41,   QFormatId::kQ50,
                                     QFormatId::kQ51, QFormatId::kIq4Nl, QFormatId::kMxfp4,
                                     QFormatId::kQ2K, QFormatId::kQ3K,   QFormatId::kQ4K,
                                     QFormatId::kQ5K, QFormatId::kIq4Xs};

TEST_F(BlockDigits, ExistForTheseFormatsAlone) {
  for (const QFormatInfo& info : qformats()) {
    const bool expected =
        std::find(std::begin(kInIntegers), std::end(kInIntegers), info.id) != std::end(kInIntegers);
    EXPECT_EQ(find_digits(info.id) != nullptr, expected) << info.name;
  }
}

constexpr std::size_t kDigitCols = 768;

test::TestMatrix digit_matrix(QFormatId id, std::uint32_t seed) {
  return {{.id = id}, 5, kDigitCols, test::Values::kUsual, 0, seed};
}

// Sizes of inputs over 40 powers of two within a block, whole blocks of zeros, and the largest
// numbers before the integers' next power: each within the bound, and an outlier spoils no other
// block.
TEST_F(BlockDigits, KeepTheBoundForMixedMagnitudes) {
  std::mt19937 random(21);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (QFormatId id : kInIntegers) {
    const test::TestMatrix matrix = digit_matrix(id, 31);
    for (int variant = 0; variant < 4; ++variant) {
      test::GuardedFloats x(2 * kDigitCols);
      for (std::size_t i = 0; i < 2 * kDigitCols; ++i) {
        const float value = uniform(random);
        if (variant == 0) x[i] = std::ldexp(value, static_cast<int>(random() % 40) - 36);
        if (variant == 1) x[i] = i / 32 % 3 == 0 ? 0.0F : value;
        if (variant == 2) x[i] = i % 96 == 5 ? 1e6F : value;
        if (variant == 3)
          x[i] = std::copysign(1.98F + 0.0001F * static_cast<float>(i % 200), value);
      }
      const ExactProduct exact = exact_product(matrix.view(), x.data(), kDigitCols, 2);
      const std::vector<float> y = multiply(*kernels_, matrix.view(), x, 2);
      ASSERT_TRUE(takes(id, matrix.view(), x)) << qformat_info(id).name << " " << variant;
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(y[i]), exact.value[i],
                    test::product_bound(exact, i, kDigitCols, true))
            << qformat_info(id).name << " variant " << variant << " at " << i;
      }
    }
  }
}

// All codes and inputs at an end of their range: the largest sums that 32 bits must hold.
TEST_F(BlockDigits, HoldTheLargestSums) {
  const float largest = 1.0F + 8306687.0F * 0x1p-23F;  // the next number counts as the next power
  for (QFormatId id : kInIntegers) {
    const QFormatInfo& info = qformat_info(id);
    const std::size_t count = kDigitCols / info.block_values;
    for (Fill fill : {Fill::kZeros, Fill::kOnes}) {
      GuardedBytes bytes = make_blocks(id, count, fill, 127, 0);
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t at : scale_fields(id)) {
          store_le(bytes.data() + i * info.block_bytes + at, std::uint16_t{0x3c00});
        }
      }
      const QMatrixView w{{.id = id}, 1, kDigitCols, bytes.data(), nullptr, nullptr};
      for (float value :
           {largest, -largest, std::nextafter(largest, 2.0F), std::nextafter(2.0F, 0.0F)}) {
        test::GuardedFloats x(kDigitCols, value);
        const ExactProduct exact = exact_product(w, x.data(), kDigitCols, 1);
        EXPECT_NEAR(static_cast<double>(multiply(*kernels_, w, x, 1)[0]), exact.value[0],
                    test::product_bound(exact, 0, kDigitCols, true))
            << info.name << " " << value << " fill " << static_cast<int>(fill);
      }
    }
  }
}

// Inputs that are small integers are represented without an error, and so are their sums: with
// scales that are powers of two the product is exact.
TEST_F(BlockDigits, AreExactForSmallIntegers) {
  std::mt19937 random(22);
  for (QFormatId id : {QFormatId::kQ40, QFormatId::kQ50, QFormatId::kIq4Nl}) {
    GuardedBytes bytes = make_blocks(id, 24, Fill::kRandom, 0x3c00, 0);
    for (std::size_t i = 0; i < 24; ++i) {
      store_le(bytes.data() + i * qformat_info(id).block_bytes, std::uint16_t{0x3c00});
    }
    const QMatrixView w{{.id = id}, 1, kDigitCols, bytes.data(), nullptr, nullptr};
    test::GuardedFloats x(kDigitCols);
    for (float& value : x.span()) value = static_cast<float>(static_cast<int>(random() % 15) - 7);
    EXPECT_EQ(static_cast<double>(multiply(*kernels_, w, x, 1)[0]),
              exact_product(w, x.data(), kDigitCols, 1).value[0])
        << qformat_info(id).name;
  }
}

// What no integer can stand for: the whole token takes the way of the float kernels, to the bit,
// and the tokens beside it do not notice.
TEST_F(BlockDigits, LeaveUnfitInputsToTheFloatKernels) {
  std::mt19937 random(23);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  for (QFormatId id : kInIntegers) {
    const test::TestMatrix matrix = digit_matrix(id, 33);
    const QMatrixView& w = matrix.view();
    for (float bad : {NAN, -NAN, INFINITY, -INFINITY, 0x1p-61F, 1e-42F}) {
      for (std::size_t where : {std::size_t{0}, std::size_t{300}, kDigitCols - 1}) {
        test::GuardedFloats x(3 * kDigitCols);
        for (float& value : x.span()) value = uniform(random);
        const std::vector<float> without = multiply(*kernels_, w, x, 3);
        // A small input is only unfit where its block has no other.
        const std::size_t block = where / test::unit_inputs(id) * test::unit_inputs(id);
        for (std::size_t i = 0; i < test::unit_inputs(id); ++i) x[kDigitCols + block + i] = 0;
        x[kDigitCols + where] = bad;
        test::GuardedFloats alone(kDigitCols);
        std::copy_n(x.data() + kDigitCols, kDigitCols, alone.data());
        ASSERT_FALSE(takes(id, w, alone)) << qformat_info(id).name << " " << bad;
        const std::vector<float> expected = multiply(*floats_, w, alone, 1);
        const std::vector<float> y = multiply(*kernels_, w, x, 3);
        for (std::size_t r = 0; r < w.rows; ++r) {
          ASSERT_TRUE(same_bits(y[r], without[r])) << qformat_info(id).name << " token 0";
          ASSERT_TRUE(same_bits(y[w.rows + r], expected[r])) << qformat_info(id).name << " " << bad;
          ASSERT_TRUE(same_bits(y[2 * w.rows + r], without[2 * w.rows + r])) << "token 2";
          if (std::isnan(bad)) {
            ASSERT_TRUE(std::isnan(y[w.rows + r]));
          }
        }
      }
    }
  }
}

std::string level_name(const testing::TestParamInfo<CpuLevel>& info) {
  return std::string(cpu_level_name(info.param));
}
INSTANTIATE_TEST_SUITE_P(Simd, BlockKernels,
                         testing::Values(CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kAvx512Vnni),
                         level_name);

}  // namespace
}  // namespace moepack::block_kernels_test

#endif
