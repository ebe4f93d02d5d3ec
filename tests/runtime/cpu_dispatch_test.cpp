#include <gtest/gtest.h>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "runtime/cpu/cpu_detect.h"
#include "runtime/model/kernels.h"
#include "tests/support/status_matchers.h"

namespace moepack::cpu_dispatch_test {
namespace {

// Registers of a processor with everything, under a system that saves all of its state.
CpuidReport full_report() {
  return {.leaf1_ecx = 0xffffffffU,
          .leaf7_ebx = 0xffffffffU,
          .leaf7_ecx = 0xffffffffU,
          .leaf7_edx = 0xffffffffU,
          .leaf7_1_eax = 0xffffffffU,
          .xcr0 = 0x600e7};
}

TEST(CpuDetect, TakesTheBestLevelThatProcessorAndSystemSupport) {
  EXPECT_EQ(level_from_cpuid({}), CpuLevel::kScalar);
  EXPECT_EQ(level_from_cpuid(full_report()), CpuLevel::kAmx);
}

TEST(CpuDetect, EveryBitOfAmxIsNeeded) {
  for (unsigned bit : {24U, 25U}) {  // tiles, products of bytes
    CpuidReport report = full_report();
    report.leaf7_edx &= ~(1U << bit);
    EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAvx512Vnni) << bit;
  }
  for (unsigned bit : {17U, 18U}) {  // the system saves shapes, and what is in the tiles
    CpuidReport report = full_report();
    report.xcr0 &= ~(std::uint64_t{1} << bit);
    EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAvx512Vnni) << bit;
  }
}

TEST(CpuDetect, EveryBitOfAvx512IsNeeded) {
  for (unsigned bit : {16U, 17U, 30U, 31U}) {  // F, DQ, BW, VL
    CpuidReport report = full_report();
    report.leaf7_ebx &= ~(1U << bit);
    EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAvxVnni) << bit;
    report.leaf7_1_eax = ~(1U << 4);
    EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAvx2) << bit;
  }
}

// Better levels do not promise it: some processors have AVX-512 alone.
TEST(CpuDetect, AvxVnniIsAskedForByItself) {
  CpuidReport report = full_report();
  EXPECT_TRUE(has_avx_vnni(report));
  report.leaf7_1_eax = ~(1U << 4);
  EXPECT_FALSE(has_avx_vnni(report));
  EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAmx);
  report = full_report();
  report.xcr0 = 0x03;
  EXPECT_FALSE(has_avx_vnni(report));
}

TEST(CpuDetect, EveryBitOfVnniIsNeeded) {
  for (unsigned bit : {1U, 11U}) {  // VBMI, VNNI
    CpuidReport report = full_report();
    report.leaf7_ecx &= ~(1U << bit);
    EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAvx512) << bit;
    EXPECT_EQ(has_avx512_vnni(report), bit == 1U) << bit;
  }
  CpuidReport report = full_report();
  EXPECT_TRUE(has_avx512_vnni(report));
  report.leaf7_ebx &= ~(1U << 30);  // BW
  EXPECT_FALSE(has_avx512_vnni(report));
}

TEST(CpuDetect, EveryBitOfAvx2IsNeeded) {
  for (unsigned bit : {12U, 27U, 28U, 29U}) {  // FMA, OSXSAVE, AVX, F16C
    CpuidReport report = full_report();
    report.leaf1_ecx &= ~(1U << bit);
    EXPECT_EQ(level_from_cpuid(report), CpuLevel::kScalar) << bit;
  }
  CpuidReport report = full_report();
  report.leaf7_ebx &= ~(1U << 5);
  EXPECT_EQ(level_from_cpuid(report), CpuLevel::kScalar);
}

// Instructions whose registers the system does not save on a task switch must not be used.
TEST(CpuDetect, TheSystemMustSaveTheRegisters) {
  CpuidReport report = full_report();
  report.xcr0 = 0x07;  // no mask or ZMM state
  EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAvxVnni);
  report.xcr0 = 0x67;  // no upper ZMM registers
  EXPECT_EQ(level_from_cpuid(report), CpuLevel::kAvxVnni);
  report.xcr0 = 0x03;  // no YMM state
  EXPECT_EQ(level_from_cpuid(report), CpuLevel::kScalar);
}

// What Linux reports of a Neoverse N1, and of a Cortex-A72, which has no products of bytes.
TEST(CpuDetect, NeonNeedsProductsOfBytesAndArmv82) {
  constexpr std::uint64_t kNeoverseN1 = 0x10119fff;
  EXPECT_EQ(level_from_arm_hwcap(kNeoverseN1), CpuLevel::kNeon);
  EXPECT_EQ(level_from_arm_hwcap(0xff), CpuLevel::kScalar);
  EXPECT_EQ(level_from_arm_hwcap(0), CpuLevel::kScalar);
  for (unsigned bit : {1U, 7U, 8U, 12U, 20U}) {  // ASIMD, CRC32, ATOMICS, ASIMDRDM, ASIMDDP
    EXPECT_EQ(level_from_arm_hwcap(kNeoverseN1 & ~(std::uint64_t{1} << bit)), CpuLevel::kScalar)
        << bit;
  }
}

#if defined(__x86_64__)
// The compiler's own run-time library as a second opinion on this machine.
TEST(CpuDetect, AgreesWithTheCompiler) {
  const CpuLevel level = detect_cpu_level();
  EXPECT_EQ(level >= CpuLevel::kAvx2,
            __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(level >= CpuLevel::kAvx512,
            __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(level >= CpuLevel::kAvx512Vnni, level >= CpuLevel::kAvx512 &&
                                                __builtin_cpu_supports("avx512vnni") != 0 &&
                                                __builtin_cpu_supports("avx512vbmi") != 0);
}

// The system's own answer to whether this process may use tiles.
TEST(CpuDetect, TilesAreTakenWhereTheSystemGaveLeave) {
  if (level_from_cpuid(read_cpuid()) != CpuLevel::kAmx) {
    GTEST_SKIP() << "SKIPPED: this processor has no AMX";
  }
  const CpuLevel level = detect_cpu_level();
  constexpr long kArchGetXcompPerm = 0x1022;  // arch/x86/include/uapi/asm/prctl.h
  std::uint64_t allowed = 0;
  const bool answers = syscall(SYS_arch_prctl, kArchGetXcompPerm, &allowed) == 0;
  EXPECT_EQ(level == CpuLevel::kAmx, answers && ((allowed >> 18) & 1) != 0);
}
#endif

TEST(CpuKernels, GivesWhatRunsHereAndRefusesTheRestByName) {
  EXPECT_TRUE(has_cpu_level(CpuLevel::kScalar));
  EXPECT_TRUE(has_cpu_level(detect_cpu_level()));
  EXPECT_FALSE(has_cpu_level(CpuLevel::kNeon) && has_cpu_level(CpuLevel::kAvx2));
  for (CpuLevel level : kCpuLevels) {
    const Result<const Kernels*> kernels = cpu_kernels(level);
    if (has_cpu_level(level)) {
      ASSERT_OK(kernels);
      EXPECT_EQ(kernels.value()->name, cpu_level_name(level));
    } else {
      test::expect_error(kernels.status(), StatusCode::kUnsupported,
                         {cpu_level_name(level), cpu_level_name(detect_cpu_level())});
    }
  }
  EXPECT_EQ(cpu_kernels(CpuLevel::kScalar).value()->matmul, reference_kernels().matmul);
  EXPECT_EQ(reference_kernels().name, "reference");
}

// Files keep whose bits they have: tables that share a name for them have the same functions.
TEST(CpuKernels, TablesOfTheSameBitsDifferInIntegersAlone) {
  for (const CpuLevel level : kCpuLevels) {
    if (!has_cpu_level(level)) continue;
    const Kernels& table = *cpu_kernels(level).value();
    const bool is_other_name = level == CpuLevel::kAvxVnni || level == CpuLevel::kAmx;
    EXPECT_EQ(table.bits == table.name, !is_other_name) << table.name;
    const Kernels& first = *cpu_kernels(parse_cpu_level(table.bits).value()).value();
    EXPECT_EQ(first.bits, first.name);
    EXPECT_EQ(first.matmul, table.matmul) << table.name;
    EXPECT_EQ(first.dot, table.dot) << table.name;
    EXPECT_EQ(first.swiglu, table.swiglu) << table.name;
    EXPECT_EQ(first.attention, table.attention) << table.name;
    EXPECT_EQ(first.delta_block, table.delta_block) << table.name;
  }
  EXPECT_EQ(reference_kernels().bits, "reference");
}

TEST(CpuKernels, LevelsAreParsedByName) {
  EXPECT_EQ(parse_cpu_level("auto").value(), detect_cpu_level());
  EXPECT_EQ(parse_cpu_level("scalar").value(), CpuLevel::kScalar);
  EXPECT_EQ(parse_cpu_level("avx2").value(), CpuLevel::kAvx2);
  EXPECT_EQ(parse_cpu_level("avx512").value(), CpuLevel::kAvx512);
  EXPECT_EQ(parse_cpu_level("avx512vnni").value(), CpuLevel::kAvx512Vnni);
  EXPECT_EQ(parse_cpu_level("amx").value(), CpuLevel::kAmx);
  EXPECT_EQ(parse_cpu_level("neon").value(), CpuLevel::kNeon);
  test::expect_error(parse_cpu_level("sve\n").status(), StatusCode::kInvalidArgument,
                     {"sve", "avx2", "neon"});
}

}  // namespace
}  // namespace moepack::cpu_dispatch_test
