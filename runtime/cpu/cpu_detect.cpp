#include "runtime/cpu/cpu_detect.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace moepack {
namespace {

constexpr std::uint32_t kLeaf1Fma = 1U << 12;
constexpr std::uint32_t kLeaf1Osxsave = 1U << 27;
constexpr std::uint32_t kLeaf1Avx = 1U << 28;
constexpr std::uint32_t kLeaf1F16c = 1U << 29;

constexpr std::uint32_t kLeaf7Avx2 = 1U << 5;
constexpr std::uint32_t kLeaf7Avx512f = 1U << 16;
constexpr std::uint32_t kLeaf7Avx512dq = 1U << 17;
constexpr std::uint32_t kLeaf7Avx512bw = 1U << 30;
constexpr std::uint32_t kLeaf7Avx512vl = 1U << 31;
constexpr std::uint32_t kLeaf7EcxAvx512vbmi = 1U << 1;
constexpr std::uint32_t kLeaf7EcxAvx512vbmi2 = 1U << 6;
constexpr std::uint32_t kLeaf7EcxAvx512vnni = 1U << 11;
constexpr std::uint32_t kLeaf7EdxAmxTile = 1U << 24;
constexpr std::uint32_t kLeaf7EdxAmxInt8 = 1U << 25;
constexpr std::uint32_t kLeaf71EaxAvxVnni = 1U << 4;

// Bits of XCR0 for XMM and YMM, for AVX-512 also for the mask registers and both halves of ZMM, for
// AMX for the shapes of tiles and what is in them.
constexpr std::uint64_t kXcr0Avx = 0x06;
constexpr std::uint64_t kXcr0Avx512 = 0xe6;
constexpr std::uint64_t kTileDataBit = 18;
constexpr std::uint64_t kXcr0Amx = (std::uint64_t{1} << 17) | (std::uint64_t{1} << kTileDataBit);

constexpr std::uint64_t kHwcapAsimd = 1U << 1;
constexpr std::uint64_t kHwcapCrc32 = 1U << 7;
constexpr std::uint64_t kHwcapAtomics = 1U << 8;
constexpr std::uint64_t kHwcapAsimdrdm = 1U << 12;
constexpr std::uint64_t kHwcapAsimddp = 1U << 20;

template <typename T>
bool has_all(T value, T bits) {
  return (value & bits) == bits;
}

bool has_avx2(const CpuidReport& report) {
  return has_all(report.leaf1_ecx, kLeaf1Fma | kLeaf1Osxsave | kLeaf1Avx | kLeaf1F16c) &&
         has_all(report.leaf7_ebx, kLeaf7Avx2) && has_all(report.xcr0, kXcr0Avx);
}

bool has_avx512(const CpuidReport& report) {
  return has_avx2(report) &&
         has_all(report.leaf7_ebx,
                 kLeaf7Avx512f | kLeaf7Avx512dq | kLeaf7Avx512bw | kLeaf7Avx512vl) &&
         has_all(report.xcr0, kXcr0Avx512);
}

bool has_amx(const CpuidReport& report) {
  return has_all(report.leaf7_edx, kLeaf7EdxAmxTile | kLeaf7EdxAmxInt8) &&
         has_all(report.xcr0, kXcr0Amx);
}

}  // namespace

CpuidReport read_cpuid() {
  CpuidReport report;
#if defined(__x86_64__)
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0) report.leaf0 = {ebx, edx, ecx};
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return report;
  report.leaf1_eax = eax;
  report.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    report.leaf7_ebx = ebx;
    report.leaf7_ecx = ecx;
    report.leaf7_edx = edx;
  }
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) report.leaf7_1_eax = eax;
  if (has_all(report.leaf1_ecx, kLeaf1Osxsave)) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    report.xcr0 = (std::uint64_t{high} << 32) | low;
  }
#endif
  return report;
}

CpuLevel level_from_cpuid(const CpuidReport& report) {
  if (!has_avx2(report)) return CpuLevel::kScalar;
  if (!has_avx512(report)) return has_avx_vnni(report) ? CpuLevel::kAvxVnni : CpuLevel::kAvx2;
  const bool has_vbmi = has_all(report.leaf7_ecx, kLeaf7EcxAvx512vbmi | kLeaf7EcxAvx512vbmi2);
  if (!has_avx512_vnni(report) || !has_vbmi) return CpuLevel::kAvx512;
  return has_amx(report) ? CpuLevel::kAmx : CpuLevel::kAvx512Vnni;
}

bool request_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kArchReqXcompPerm = 0x1023;  // arch/x86/include/uapi/asm/prctl.h
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kTileDataBit) == 0;
#else
  return false;
#endif
}

bool has_avx512_vnni(const CpuidReport& report) {
  return has_avx512(report) && has_all(report.leaf7_ecx, kLeaf7EcxAvx512vnni);
}

bool has_avx_vnni(const CpuidReport& report) {
  return has_avx2(report) && has_all(report.leaf7_1_eax, kLeaf71EaxAvxVnni);
}

bool is_made_by_amd(const CpuidReport& report) {
  return std::memcmp(report.leaf0.data(), "AuthenticAMD", sizeof report.leaf0) == 0;
}

std::uint32_t processor_family(const CpuidReport& report) {
  const std::uint32_t base = report.leaf1_eax >> 8 & 0xf;
  const std::uint32_t more = report.leaf1_eax >> 20 & 0xff;
  return base == 0xf ? base + more : base;
}

std::uint64_t read_arm_hwcap() {
#if defined(__aarch64__) && defined(__linux__)
  return getauxval(AT_HWCAP);
#else
  return 0;
#endif
}

CpuLevel level_from_arm_hwcap(std::uint64_t hwcap) {
  // CRC32, atomics and RDM are parts of Armv8.2, which compilers may take for granted there.
  constexpr std::uint64_t kNeeded =
      kHwcapAsimd | kHwcapCrc32 | kHwcapAtomics | kHwcapAsimdrdm | kHwcapAsimddp;
  return has_all(hwcap, kNeeded) ? CpuLevel::kNeon : CpuLevel::kScalar;
}

}  // namespace moepack
