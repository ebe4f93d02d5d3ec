// Writes GGUF files for tests from the specification's words, byte by byte, and shares nothing with
// the reader. A file is right unless a test asks otherwise: errors are made by changing the bytes
// afterwards, or with the fields that can be overridden.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace moepack::test {

class GgufWriter {
 public:
  explicit GgufWriter(bool big_endian = false) : big_endian_(big_endian) {}

  // The bytes of a number in the file's order.
  template <typename T>
  std::string number(T value) const {
    std::uint64_t bits = 0;
    if constexpr (std::is_same_v<T, float>) {
      bits = std::bit_cast<std::uint32_t>(value);
    } else if constexpr (std::is_same_v<T, double>) {
      bits = std::bit_cast<std::uint64_t>(value);
    } else {
      bits = static_cast<std::uint64_t>(value);
    }
    std::string bytes;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      const std::size_t place = big_endian_ ? sizeof(T) - 1 - i : i;
      bytes += static_cast<char>((bits >> (8 * place)) & 0xffU);
    }
    return bytes;
  }
  std::string string(std::string_view text) const {
    return number<std::uint64_t>(text.size()) + std::string(text);
  }

  // `type` by its number in the format; `value` as it stands in the file.
  GgufWriter& key(std::string_view name, std::uint32_t type, std::string_view value) {
    keys_ += string(name) + number(type);
    keys_ += value;
    ++num_keys_;
    return *this;
  }
  GgufWriter& u16(std::string_view name, std::uint16_t v) { return key(name, 2, number(v)); }
  GgufWriter& u32(std::string_view name, std::uint32_t v) { return key(name, 4, number(v)); }
  GgufWriter& i32(std::string_view name, std::int32_t v) { return key(name, 5, number(v)); }
  GgufWriter& text(std::string_view name, std::string_view v) { return key(name, 8, string(v)); }
  GgufWriter& array(std::string_view name, std::uint32_t element, std::uint64_t count,
                    std::string_view elements) {
    return key(name, 9, number(element) + number(count) + std::string(elements));
  }
  GgufWriter& split(std::uint16_t no, std::uint16_t count, std::int32_t tensors) {
    return u16("split.no", no).u16("split.count", count).i32("split.tensors.count", tensors);
  }

  // Adds a tensor. `ne` is in the file's order, the contiguous dimension first, and so are the
  // bytes of `data`. `offset` replaces the right one.
  GgufWriter& tensor(std::string_view name, const std::vector<std::uint64_t>& ne,
                     std::uint32_t type, std::string_view data,
                     std::optional<std::uint64_t> offset = std::nullopt) {
    infos_ += string(name) + number(static_cast<std::uint32_t>(ne.size()));
    for (std::uint64_t dimension : ne) infos_ += number(dimension);
    infos_ += number(type) + number<std::uint64_t>(offset.value_or(data_.size()));
    data_ += data;
    pad(data_);
    ++num_tensors_;
    return *this;
  }
  // Sets the alignment of tensors; call it before the first one. It does not write the key.
  GgufWriter& align_to(std::uint64_t alignment) {
    alignment_ = alignment;
    return *this;
  }

  std::string head(std::uint32_t version = 3) const {
    return "GGUF" + number(version) + number(num_tensors_) + number(num_keys_) + keys_ + infos_;
  }
  std::string bytes(std::uint32_t version = 3) const {
    std::string file = head(version);
    if (num_tensors_ > 0) pad(file);
    return file + data_;
  }

 private:
  void pad(std::string& text) const {
    while (text.size() % alignment_ != 0) text += '\0';
  }

  bool big_endian_;
  std::uint64_t alignment_ = 32;
  std::uint64_t num_keys_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::string keys_;
  std::string infos_;
  std::string data_;
};

}  // namespace moepack::test
