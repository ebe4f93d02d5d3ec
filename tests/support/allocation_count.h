// Counts how much memory the program holds through operator new and AlignedBuffer. It works in test
// programs linked with moepack_allocation_count, which puts functions of its own in their place.
#pragma once

#include <cstddef>

namespace moepack::test {

// Bytes asked for and not given back.
std::size_t allocated_bytes();
// The largest allocated_bytes() since the last restart_peak().
std::size_t peak_allocated_bytes();
void restart_peak();

}  // namespace moepack::test
