#include "tests/support/allocation_faults.h"

#include <cerrno>
#include <cstdlib>
#include <new>

// The linker turns calls of posix_memalign in this program into the __wrap_ function, and __real_
// names what it stands for.
extern "C" {
int __real_posix_memalign(void** memory, std::size_t alignment, std::size_t size);
int __wrap_posix_memalign(void** memory, std::size_t alignment, std::size_t size);
}

namespace moepack::test {
namespace {

struct FaultPlan {
  std::size_t seen = 0;
  std::size_t first = 0;  // 0: none fails
  std::size_t count = 0;

  bool next_fails() {
    if (first == 0) return false;
    ++seen;
    return seen >= first && seen - first < count;
  }
};

FaultPlan& fault_plan() {
  thread_local FaultPlan plan;
  return plan;
}

void* faulty_malloc(std::size_t size) {
  return fault_plan().next_fails() ? nullptr : std::malloc(size == 0 ? 1 : size);
}

void* faulty_new(std::size_t size) {
  void* memory = faulty_malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

AllocationFault::AllocationFault(std::size_t first, std::size_t count) {
  fault_plan() = {.seen = 0, .first = first, .count = count};
}
AllocationFault::~AllocationFault() { fault_plan() = {}; }
bool AllocationFault::happened() const { return fault_plan().seen >= fault_plan().first; }

}  // namespace moepack::test

extern "C" int __wrap_posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  if (moepack::test::fault_plan().next_fails()) return ENOMEM;
  return __real_posix_memalign(memory, alignment, size);
}

void* operator new(std::size_t size) { return moepack::test::faulty_new(size); }
void* operator new[](std::size_t size) { return moepack::test::faulty_new(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return moepack::test::faulty_malloc(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return moepack::test::faulty_malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
