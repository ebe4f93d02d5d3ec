// The one checksum of everything moepack writes: XXH3, 64 bits (xxHash specification, seed 0),
// printed as 16 lower-case hex digits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moepack {

std::uint64_t checksum(std::span<const std::byte> data);
std::string checksum_text(std::uint64_t sum);
// Exactly 16 lower-case hex digits, else nullopt.
std::optional<std::uint64_t> parse_checksum(std::string_view text);

// The same sum over pieces.
class ChecksumStream {
 public:
  ChecksumStream();
  ~ChecksumStream();
  ChecksumStream(const ChecksumStream&) = delete;
  ChecksumStream& operator=(const ChecksumStream&) = delete;

  void add(std::span<const std::byte> data);
  std::uint64_t finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moepack
