// What products of codes do as the processor at hand likes it best. It never changes a result.
#pragma once

#include <cstddef>

#include "runtime/cpu/cpu_detect.h"

namespace moepack {

struct CodeTuning {
  // Tokens of a call up to which codes are unpacked again for every few of them, instead of once
  // into a panel of bytes (docs/decisions.md, section 80).
  std::size_t most_unpacked = 0;
  // Bytes before their use that the first-level cache is asked for rows of one stream
  // (docs/decisions.md, sections 67, 84, 97 and 102).
  std::size_t first_cache_ahead = 1024;
};

// What was fastest on processors of that kind. Pure.
CodeTuning code_tuning(const CpuidReport& report);

// Of this processor, asked for once. Any number of threads.
const CodeTuning& code_tuning();

}  // namespace moepack
