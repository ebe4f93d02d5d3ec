// Which instruction sets may be used, from what the processor and the operating system report.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/model/kernels.h"

namespace moepack {

// The registers as they are read. Sources: Intel SDM volume 2 (CPUID), volume 1 section 13 (XCR0).
struct CpuidReport {
  std::array<std::uint32_t, 3> leaf0 = {};  // EBX, EDX, ECX: the maker's name
  std::uint32_t leaf1_eax = 0;
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;  // of subleaf 1
  std::uint64_t xcr0 = 0;         // 0 unless leaf1_ecx has OSXSAVE
};

// All zero on processors other than x86-64.
CpuidReport read_cpuid();

// The best level whose instructions the processor has and whose registers the operating system
// promises to save; for kAmx the process needs leave, too (request_tiles). Pure; any number of
// threads.
CpuLevel level_from_cpuid(const CpuidReport& report);

// Whether level avx512 has products of bytes: VNNI beside AVX-512. Pure.
bool has_avx512_vnni(const CpuidReport& report);

// Whether CpuLevel::kAvxVnni can be used, which better levels do not promise. Pure.
bool has_avx_vnni(const CpuidReport& report);

// Asks the system for leave to use tiles, which Linux gives to a whole process and for good;
// whether it was given. From then on an alternate stack for signals must have room for tiles, about
// 11 KiB; where one has not, leave is refused. Source: Documentation/arch/x86/xstate.rst. False on
// other systems. Any number of threads.
bool request_tiles();

// Whether the name is "AuthenticAMD". Source: AMD64 APM volume 3, CPUID Fn0000_0000. Pure.
bool is_made_by_amd(const CpuidReport& report);

// The processor's family, as 25 of a Zen 4. Sources: AMD64 APM volume 3, CPUID Fn0000_0001; Intel
// SDM volume 2. Pure.
std::uint32_t processor_family(const CpuidReport& report);

// AT_HWCAP of the auxiliary vector, by which Linux on AArch64 names the instructions that programs
// may use. Source: arch/arm64/include/uapi/asm/hwcap.h. 0 on other processors and systems.
std::uint64_t read_arm_hwcap();

// kNeon where all is there that its kernels are compiled for: Armv8.2 with products of bytes.
CpuLevel level_from_arm_hwcap(std::uint64_t hwcap);

}  // namespace moepack
