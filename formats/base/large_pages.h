// Memory that is read from end to end for every token. The system is asked to back it with large
// pages where it can: processors fetch ahead within a page alone, and look up fewer of them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace moepack {

constexpr std::size_t kLargePage = std::size_t{2} << 20;

// Memory of at least `bytes`, aligned to `alignment` (a power of two) or, of arrays of a large page
// or more, to such pages; nullptr when there is none. Freed by std::free.
inline void* allocate_in_large_pages(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  const bool is_large = bytes >= kLargePage;
  if (::posix_memalign(&memory, is_large ? std::max(alignment, kLargePage) : alignment, bytes) !=
      0) {
    return nullptr;
  }
  // A wish, for the whole pages of an array, so that it never holds more memory than asked for:
  // without large pages the memory is slower and nothing else.
  if (is_large) (void)::madvise(memory, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
  return memory;
}

// Takes large pages for the whole ones of an array, so that it never holds more memory than asked
// for; small arrays are as others. Throws std::bad_alloc as std::allocator does.
template <typename T>
struct LargePageAllocator {
  using value_type = T;

  LargePageAllocator() = default;
  template <typename U>
  explicit LargePageAllocator(const LargePageAllocator<U>&) {}

  T* allocate(std::size_t count) {
    void* memory = allocate_in_large_pages(count * sizeof(T), kCacheLine);
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { std::free(memory); }

  template <typename U>
  bool operator==(const LargePageAllocator<U>&) const {
    return true;
  }

 private:
  static constexpr std::size_t kCacheLine = 64;
};

template <typename T>
using LargePageVector = std::vector<T, LargePageAllocator<T>>;

}  // namespace moepack
