#include "tests/support/allocation_count.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <new>

// The linker turns calls of posix_memalign and free in this program into the __wrap_ functions, and
// __real_ names what they stand for.
extern "C" {
int __real_posix_memalign(void** memory, std::size_t alignment, std::size_t size);
void __real_free(void* memory);
int __wrap_posix_memalign(void** memory, std::size_t alignment, std::size_t size);
void __wrap_free(void* memory);
}

namespace moepack::test {
namespace {

// The books are kept in memory of their own.
template <typename T>
struct Uncounted {
  using value_type = T;
  Uncounted() = default;
  template <typename U>
  Uncounted(const Uncounted<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t count) { return static_cast<T*>(std::malloc(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) { __real_free(memory); }
  friend bool operator==(const Uncounted&, const Uncounted&) { return true; }
};

struct Books {
  std::mutex mutex;
  std::map<void*, std::size_t, std::less<>, Uncounted<std::pair<void* const, std::size_t>>> sizes;
  std::size_t held = 0;
  std::size_t peak = 0;

  void add(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex);
    sizes[memory] = size;
    held += size;
    peak = std::max(peak, held);
  }
  void remove(void* memory) {
    const std::lock_guard lock(mutex);
    const auto found = sizes.find(memory);
    if (found == sizes.end()) return;
    held -= found->second;
    sizes.erase(found);
  }
};

// The books are never destroyed, because memory is given back until the very end of the program.
Books& books() {
  alignas(Books) static std::byte place[sizeof(Books)];
  static Books* const made = new (place) Books;
  return *made;
}

void* counted_new(std::size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  books().add(memory, size);
  return memory;
}

void counted_free(void* memory) {
  if (memory == nullptr) return;
  books().remove(memory);
  __real_free(memory);
}

}  // namespace

std::size_t allocated_bytes() {
  const std::lock_guard lock(books().mutex);
  return books().held;
}
std::size_t peak_allocated_bytes() {
  const std::lock_guard lock(books().mutex);
  return books().peak;
}
void restart_peak() {
  const std::lock_guard lock(books().mutex);
  books().peak = books().held;
}

}  // namespace moepack::test

extern "C" int __wrap_posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  const int error = __real_posix_memalign(memory, alignment, size);
  if (error == 0) moepack::test::books().add(*memory, size);
  return error;
}
extern "C" void __wrap_free(void* memory) { moepack::test::counted_free(memory); }

void* operator new(std::size_t size) { return moepack::test::counted_new(size); }
void* operator new[](std::size_t size) { return moepack::test::counted_new(size); }
void operator delete(void* memory) noexcept { moepack::test::counted_free(memory); }
void operator delete[](void* memory) noexcept { moepack::test::counted_free(memory); }
void operator delete(void* memory, std::size_t) noexcept { moepack::test::counted_free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { moepack::test::counted_free(memory); }
