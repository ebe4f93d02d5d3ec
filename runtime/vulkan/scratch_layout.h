// Gives out addresses of a device's memory one after another, each at the alignment that all
// buffers of the scratch have.
#pragma once

#include <cstdint>

namespace moepack {

class ScratchLayout {
 public:
  explicit ScratchLayout(std::uint64_t address) : next_(address) {}
  std::uint64_t floats(std::uint64_t count) { return bytes(count * sizeof(float)); }
  std::uint64_t bytes(std::uint64_t count) {
    constexpr std::uint64_t kAlignment = 256;
    const std::uint64_t at = next_;
    next_ += (count + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  std::uint64_t next() const { return next_; }

 private:
  std::uint64_t next_;
};

}  // namespace moepack
