// The key-value part of a GGUF file: every key with its type and place. Values are checked when the
// file is opened, and read from it when they are asked for, so that a vocabulary costs no memory
// until somebody wants it.
//
// Source: the GGUF specification (ggml/docs/gguf.md) and ggml's gguf.cpp; where they differ, the
// stricter rule holds. Beyond them, there are at most kMaxGgufKeys keys, and a bool is 0 or 1.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/gguf/gguf_cursor.h"

namespace moepack {

constexpr std::uint64_t kMaxGgufKeys = 65'536;
constexpr std::uint64_t kMaxGgufKeyBytes = 65'535;
constexpr std::uint64_t kMaxGgufStringBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxGgufArrayElements = std::uint64_t{1} << 30;

// The numbers are those that stand in files.
enum class GgufValueType : std::uint8_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
// "u32", "string", "array".
std::string_view gguf_value_type_name(GgufValueType type);

struct GgufEntry {
  std::string key;  // any bytes: print it with printable()
  GgufValueType type = GgufValueType::kU8;
  GgufValueType element = GgufValueType::kU8;  // of an array; else as `type`
  std::uint64_t count = 1;                     // elements of an array
  std::uint64_t offset = 0;                    // of the value in the file; in an array, element 0
  std::uint64_t bytes = 0;                     // of the value; a string counts with its length
};

// Getters may be called from any number of threads. An absent key is kNotFound, a value of another
// type or out of range kCorrupt; both name file, key and what was expected.
class GgufMetadata {
 public:
  GgufMetadata() = default;
  // Reads `count` pairs from where the cursor stands, and leaves the cursor behind them. `file` is
  // the cursor's file.
  static Result<GgufMetadata> parse(std::shared_ptr<const File> file, GgufCursor& cursor,
                                    std::uint64_t count);

  // In the order of the file.
  std::span<const GgufEntry> entries() const { return entries_; }
  // nullptr when absent.
  const GgufEntry* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // A value of any integer type with 0 <= value <= max.
  Result<std::uint64_t> number(std::string_view key,
                               std::uint64_t max = std::numeric_limits<std::uint64_t>::max()) const;
  // A value of any integer type that fits into the result.
  Result<std::int64_t> signed_number(std::string_view key) const;
  // A value of type f32 or f64, or an integer.
  Result<double> real(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string> string(std::string_view key) const;

  // The elements of an array. A scalar counts as an array of one, because files have either form
  // (head counts per layer).
  Result<std::vector<std::int64_t>> numbers(std::string_view key) const;  // integers and bools
  Result<std::vector<double>> reals(std::string_view key) const;
  Result<std::vector<std::string>> strings(std::string_view key) const;
  // Hands the strings of an array to `visit` one by one, in the memory of one string; an error of
  // `visit` ends the call and is returned.
  Status for_each_string(std::string_view key,
                         const std::function<Status(std::string& text)>& visit) const;

  // The value for people, on one line of about `max_chars`; an array as "[1, 2, ...] (4 i32)".
  Result<std::string> text(const GgufEntry& entry, std::size_t max_chars) const;

 private:
  Status parse_value(GgufCursor& cursor, GgufEntry& entry);
  Result<const GgufEntry*> need(std::string_view key) const;
  Status wrong(const GgufEntry& entry, std::string_view expected) const;
  GgufCursor cursor_at(const GgufEntry& entry) const;
  template <typename T, typename Convert>
  Result<std::vector<T>> list(std::string_view key, std::string_view expected,
                              const Convert& convert) const;

  std::shared_ptr<const File> file_;
  bool big_endian_ = false;
  std::vector<GgufEntry> entries_;
  std::vector<std::uint32_t> by_key_;  // indices into entries_, sorted by key
};

}  // namespace moepack
