// The memory that the values of one rendering hold, and the share of each value in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/jinja/error.h"
#include "runtime/jinja/limits.h"

namespace moepack::jinja {

// Used by one thread; must outlive the values that have shares in it.
class Memory {
 public:
  explicit Memory(std::uint64_t limit) : limit_(limit) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  // A limit error where that is more than may be held.
  void take(std::uint64_t bytes) {
    if (bytes > limit_ - held_) {
      fail("the values of the template need more than " + std::to_string(limit_) + " bytes",
           ErrorKind::kLimit);
    }
    held_ += bytes;
  }
  void give_back(std::uint64_t bytes) noexcept { held_ -= bytes; }

 private:
  std::uint64_t limit_;
  std::uint64_t held_ = 0;  // at most limit_
};

// What one value has taken; given back when the value ends. A copied value has no share until it
// is counted itself.
class Share {
 public:
  Share() = default;
  Share(const Share&) noexcept {}
  Share(Share&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Share& operator=(const Share&) noexcept { return *this; }
  ~Share() {
    if (memory_ != nullptr) memory_->give_back(bytes_);
  }
  bool counted() const { return memory_ != nullptr; }
  void set(Memory& memory, std::size_t bytes) {
    if (bytes > bytes_) memory.take(bytes - bytes_);
    if (bytes < bytes_) memory.give_back(bytes_ - bytes);
    memory_ = &memory;
    bytes_ = bytes;
  }

 private:
  Memory* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

// Of what holds other values: its share, and how many levels of values lie within it at most.
// Values end by recursion through these levels, so they are limited. What may be given further
// values later is kept by the run (Run::keep) and ends with it: no recursion goes through it.
struct Holding {
  Share share;
  std::size_t items = 0;  // as many of its items were counted
  std::uint32_t levels = 0;
};

}  // namespace moepack::jinja
