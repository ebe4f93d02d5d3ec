// Allocations that fail on purpose: operator new and AlignedBuffer, in the thread that asks for it.
// For test programs linked with allocation_faults.cpp, which puts its own functions in their place.
#pragma once

#include <cstddef>

namespace moepack::test {

// While it lives, allocation `first` of this thread (counted from 1) and the `count` - 1 behind it
// fail. One at a time. Nothing that allocates, so no expectation, belongs into its life.
class AllocationFault {
 public:
  AllocationFault(std::size_t first, std::size_t count);
  ~AllocationFault();
  AllocationFault(const AllocationFault&) = delete;
  AllocationFault& operator=(const AllocationFault&) = delete;

  // Whether any allocation has failed.
  bool happened() const;
};

}  // namespace moepack::test
