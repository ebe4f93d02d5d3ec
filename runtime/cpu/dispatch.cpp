#include <algorithm>
#include <string>

#include "runtime/cpu/code_kernels.h"
#include "runtime/cpu/cpu_detect.h"
#include "runtime/cpu/kernel_layout.h"
#include "runtime/cpu/kernel_tables.h"
#include "runtime/model/kernel_support.h"
#include "runtime/model/kernels.h"
#include "runtime/model/restored_panels.h"

namespace moepack {

static_assert(kMaxFusedTokens == kFewTokens);

std::size_t matmul_scratch_floats(std::uint64_t cols) {
  return std::max({fused_scratch_floats(cols), block_scratch_floats(cols),
                   digit_scratch_floats(cols), kRowBlock * kColTile,
                   kPanelScratchBytes / sizeof(float)}) +
         kScratchAlignFloats + restored_panel_floats(cols);
}

std::string_view cpu_level_name(CpuLevel level) {
  switch (level) {
    case CpuLevel::kNeon:
      return "neon";
    case CpuLevel::kAmx:
      return "amx";
    case CpuLevel::kAvx512Vnni:
      return "avx512vnni";
    case CpuLevel::kAvx512:
      return "avx512";
    case CpuLevel::kAvxVnni:
      return "avxvnni";
    case CpuLevel::kAvx2:
      return "avx2";
    default:
      return "scalar";
  }
}

std::string cpu_level_names() {
  std::string names;
  for (const CpuLevel level : kCpuLevels) {
    if (!names.empty()) names += ", ";
    names += cpu_level_name(level);
  }
  return names;
}

CpuLevel detect_cpu_level() {
#if defined(__aarch64__)
  static const CpuLevel kLevel = level_from_arm_hwcap(read_arm_hwcap());
#else
  static const CpuLevel kLevel = [] {
    const CpuLevel best = level_from_cpuid(read_cpuid());
    return best == CpuLevel::kAmx && !request_tiles() ? CpuLevel::kAvx512Vnni : best;
  }();
#endif
  return kLevel;
}

bool has_cpu_level(CpuLevel level) {
  if (level == CpuLevel::kAvxVnni) {
    static const bool kHasIt = has_avx_vnni(read_cpuid());
    return kHasIt;
  }
  const CpuLevel best = detect_cpu_level();
  const bool is_other_architecture = (level == CpuLevel::kNeon) != (best == CpuLevel::kNeon);
  return level == CpuLevel::kScalar || (!is_other_architecture && level <= best);
}

Result<const Kernels*> cpu_kernels(CpuLevel level) {
  if (!has_cpu_level(level)) {
    return unsupported(
        Where{},
        "this processor or its system cannot run the " + std::string(cpu_level_name(level)) +
            " kernels",
        "choose --cpu " + std::string(cpu_level_name(detect_cpu_level())) + " or auto");
  }
#if defined(__x86_64__)
  if (level == CpuLevel::kAmx) return &amx_kernels();
  if (level == CpuLevel::kAvx512Vnni) return &avx512vnni_kernels();
  if (level == CpuLevel::kAvx512) return &avx512_kernels();
  if (level == CpuLevel::kAvxVnni) return &avxvnni_kernels();
  if (level == CpuLevel::kAvx2) return &avx2_kernels();
#elif defined(__aarch64__)
  if (level == CpuLevel::kNeon) return &neon_kernels();
#endif
  static const Kernels kScalarTable = [] {
    Kernels table = reference_kernels();
    table.name = table.bits = cpu_level_name(CpuLevel::kScalar);
    table.delta_block = &scalar_delta_block();
    table.attention = &scalar_attention();
    return table;
  }();
  return &kScalarTable;
}

Result<CpuLevel> parse_cpu_level(std::string_view name) {
  if (name == "auto") return detect_cpu_level();
  for (CpuLevel level : kCpuLevels) {
    if (name == cpu_level_name(level)) return level;
  }
  return invalid_argument("no CPU level is called \"" + printable(name, 32) + "\"",
                          "use auto or one of " + cpu_level_names());
}

}  // namespace moepack
