// The levels that tests of kernel tables go through: those of the architecture that the tests were
// built for. Where the machine lacks one of them, its tests are skipped.
#pragma once

#include <vector>

#include "runtime/model/kernels.h"

namespace moepack::test {

inline std::vector<CpuLevel> levels_to_test() {
#if defined(__aarch64__)
  return {CpuLevel::kScalar, CpuLevel::kNeon};
#else
  return {CpuLevel::kScalar, CpuLevel::kAvx2,       CpuLevel::kAvxVnni,
          CpuLevel::kAvx512, CpuLevel::kAvx512Vnni, CpuLevel::kAmx};
#endif
}

}  // namespace moepack::test
