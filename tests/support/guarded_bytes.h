// Memory that ends where an inaccessible page begins: one byte read or written too far ends the
// test program, with or without sanitizers (which do not look into vector instructions).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace moepack::test {

class GuardedBytes {
 public:
  GuardedBytes() = default;
  explicit GuardedBytes(std::size_t size) : size_(size) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t body = (size + page - 1) / page * page;
    mapped_ = body + page;
    void* at = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(at);
    if (::mprotect(base_ + body, page, PROT_NONE) != 0) throw std::bad_alloc();
    data_ = base_ + (body - size);
  }
  GuardedBytes(GuardedBytes&& other) noexcept { swap(other); }
  GuardedBytes& operator=(GuardedBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  ~GuardedBytes() {
    if (base_ != nullptr) ::munmap(base_, mapped_);
  }

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // The bytes as floats; size() is a multiple of four, so they are aligned.
  std::span<float> floats() { return {reinterpret_cast<float*>(data_), size_ / sizeof(float)}; }

 private:
  void swap(GuardedBytes& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
  }

  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t mapped_ = 0;
};

// `count` floats that end at the guard.
class GuardedFloats {
 public:
  explicit GuardedFloats(std::size_t count, float value = 0.0F) : bytes_(count * sizeof(float)) {
    for (float& f : bytes_.floats()) f = value;
  }
  float* data() { return bytes_.floats().data(); }
  std::span<float> span() { return bytes_.floats(); }
  float& operator[](std::size_t i) { return bytes_.floats()[i]; }

 private:
  GuardedBytes bytes_;
};

}  // namespace moepack::test
