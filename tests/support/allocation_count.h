// How much memory the program holds: every operator new and every AlignedBuffer, counted. For test
// programs linked with moepack_allocation_count, which puts its own functions in their place.
#pragma once

#include <cstddef>

namespace moepack::test {

// Bytes asked for and not given back.
std::size_t allocated_bytes();
// The most since the last restart_peak().
std::size_t peak_allocated_bytes();
void restart_peak();

}  // namespace moepack::test
