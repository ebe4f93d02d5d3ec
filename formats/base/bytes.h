// Little-endian loads and stores at any alignment, and integer arithmetic that notices overflow.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

namespace moepack {

static_assert(std::endian::native == std::endian::little,
              "on-disk numbers are little-endian and are read without swapping");

template <typename T>
requires std::is_trivially_copyable_v<T> T load_le(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
requires std::is_trivially_copyable_v<T>
void store_le(void* at, T value) { std::memcpy(at, &value, sizeof(T)); }

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// Smallest multiple of `alignment` (>= 1) that is >= value. The caller rules out overflow.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  const std::uint64_t rest = value % alignment;
  return rest == 0 ? value : value + (alignment - rest);
}

constexpr std::uint64_t div_up(std::uint64_t value, std::uint64_t by) {
  return value / by + (value % by != 0 ? 1 : 0);
}

}  // namespace moepack
