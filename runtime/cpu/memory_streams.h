// How a product goes through the codes of a matrix: how they are asked for from memory where few
// tokens are multiplied, so that memory decides how long it takes, and how often they are unpacked
// where there are more. It never changes a result.
#pragma once

#include <cstddef>

#include "runtime/cpu/cpu_detect.h"

namespace moepack {

struct MemoryStreams {
  std::size_t side_by_side;  // panels that one token is multiplied with at a time, 1 or 2
  // Bytes before their use, about: whole chunks of columns (simd_codes.inc), at the end of a call's
  // rows of what is read next; 0: not asked for by itself.
  std::size_t ahead_in_second_cache;
  std::size_t ahead_in_first_cache;  // bytes before their use; from there on in all caches
  std::size_t most_unpacked;  // tokens up to which codes are unpacked again for every few of them
};

// What was fastest on processors of the maker (docs/decisions.md, sections 67, 77, 80 and 84).
// Pure.
MemoryStreams memory_streams(const CpuidReport& report);

// Of this processor, asked for once. Any number of threads.
const MemoryStreams& memory_streams();

}  // namespace moepack
