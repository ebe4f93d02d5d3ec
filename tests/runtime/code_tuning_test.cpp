// How products go about codes and memory is chosen by the processor and changes no bit.
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/code_tuning.h"
#include "runtime/cpu/codes_reference.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/model/kernels.h"
#include "tests/support/panel_matrix.h"
#include "tests/support/random_values.h"
#include "tests/support/test_matrix.h"

namespace moepack::code_tuning_test {
namespace {

using test::TestMatrix;
using test::Values;

// EBX, EDX and ECX of leaf 0 as the makers' manuals give them.
constexpr std::array<std::uint32_t, 3> kAuthenticAmd{0x68747541, 0x69746e65, 0x444d4163};
constexpr std::array<std::uint32_t, 3> kGenuineIntel{0x756e6547, 0x49656e69, 0x6c65746e};

// EAX of leaf 1 as such processors report it.
constexpr CpuidReport kZen4{.leaf0 = kAuthenticAmd, .leaf1_eax = 0x00a10f11};
constexpr CpuidReport kZen5{.leaf0 = kAuthenticAmd, .leaf1_eax = 0x00b00f21};
constexpr CpuidReport kXeon{.leaf0 = kGenuineIntel, .leaf1_eax = 0x000806f8};

TEST(CodeTuning, FamiliesAreReadAsTheManualsSay) {
  EXPECT_EQ(processor_family(kZen4), 25U);
  EXPECT_EQ(processor_family(kZen5), 26U);
  EXPECT_EQ(processor_family(kXeon), 6U);
}

TEST(CodeTuning, CodesAreUnpackedOftenOnAmdAlone) {
  EXPECT_GT(code_tuning(kZen4).most_unpacked, 0U);
  EXPECT_GT(code_tuning(kZen5).most_unpacked, 0U);
  EXPECT_EQ(code_tuning(kXeon).most_unpacked, 0U);
  EXPECT_EQ(code_tuning(CpuidReport{}).most_unpacked, 0U);
}

TEST(CodeTuning, AZen5sFirstCacheIsAskedLate) {
  EXPECT_EQ(code_tuning(kZen5).first_cache_ahead, 256U);
  for (const CpuidReport& other : {kZen4, kXeon, CpuidReport{}}) {
    EXPECT_EQ(code_tuning(other).first_cache_ahead, 1024U);
  }
}

#if defined(__x86_64__)

TEST(CodeTuning, ChangesNoBit) {
  if (!has_cpu_level(CpuLevel::kAvx512Vnni)) GTEST_SKIP() << "SKIPPED: no AVX-512 with VNNI";
  constexpr std::uint64_t kRows = 80;
  constexpr std::uint64_t kCols = 1280;
  constexpr std::size_t kTokens = 33;  // more than are ever unpacked as they are multiplied
  const std::vector<float> x = test::random_values(kTokens * kCols, 3);
  std::size_t formats = 0;
  for (const WeightFormat& format : test::all_weight_formats()) {
    const CodeMultiply kernel = avx512vnni_codes(in_order(format, RowOrder::kPanels));
    if (!has_panels(format) || kernel == nullptr) continue;
    ++formats;
    const TestMatrix matrix(format, kRows, kCols, Values::kUsual, 0, 9);
    const test::PanelMatrix panels(matrix.view(), 0);
    for (std::size_t digits : {1U, 2U}) {
      std::vector<InputBlock> blocks(kTokens * input_blocks(kCols, digits));
      reference_code_kernels().quantize(x.data(), kTokens * kCols, digits, blocks.data());
      std::vector<const InputBlock*> inputs;
      for (std::size_t t = 0; t < kTokens; ++t) {
        inputs.push_back(blocks.data() + t * input_blocks(kCols, digits));
      }
      for (const std::size_t tokens : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 13U, 32U, 33U}) {
        std::vector<float> scratch(matmul_scratch_floats(kCols));
        std::vector<float> expected(tokens * kRows);
        const CodeProduct product{matrix.view(), inputs.data(),   digits, tokens, 0,
                                  kRows,         expected.data(), kRows,  scratch};
        reference_code_kernels().multiply(product);
        for (const CpuidReport& processor : {kZen4, kZen5, kXeon}) {
          std::vector<float> y(tokens * kRows);
          // What is read next is asked for, never read: a place that does not exist will do.
          const std::byte* const nowhere = matrix.view().codes() + (std::size_t{1} << 40);
          const CodeProduct in_panels{panels.view(), inputs.data(), digits, tokens,  0,
                                      kRows,         y.data(),      kRows,  scratch, nowhere};
          kernel({in_panels, align_scratch(scratch), code_tuning(processor)});
          for (std::size_t i = 0; i < y.size(); ++i) {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(y[i]), std::bit_cast<std::uint32_t>(expected[i]))
                << to_string(format) << " digits " << digits << " tokens " << tokens << " at " << i;
          }
        }
      }
    }
  }
  EXPECT_GE(formats, 30U);
}

#endif

}  // namespace
}  // namespace moepack::code_tuning_test
