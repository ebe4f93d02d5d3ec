// The levels that tests of kernel tables go through: those of the architecture that the tests were
// built for. Where the machine lacks one of them, its tests are skipped.
#pragma once

#include <vector>

#include "runtime/model/kernels.h"

namespace moepack::test {

inline std::vector<CpuLevel> levels_to_test() {
#if defined(__aarch64__)
  constexpr bool kIsArm = true;
#else
  constexpr bool kIsArm = false;
#endif
  std::vector<CpuLevel> levels;
  for (const CpuLevel level : kCpuLevels) {
    if (level == CpuLevel::kScalar || (level == CpuLevel::kNeon) == kIsArm) levels.push_back(level);
  }
  return levels;
}

}  // namespace moepack::test
