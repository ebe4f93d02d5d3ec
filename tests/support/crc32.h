// CRC-32 (ISO 3309, as zlib's crc32), for golden data that is too large to be listed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace moepack::test {

inline std::uint32_t crc32(std::string_view bytes, std::uint32_t crc = 0) {
  static const std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = (value & 1) != 0 ? 0xEDB88320U ^ (value >> 1) : value >> 1;
      }
      table[i] = value;
    }
    return table;
  }();
  crc = ~crc;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (crc >> 8);
  }
  return ~crc;
}

// Gives `encode` every code point but surrogates, in UTF-8, and takes one CRC-32 of what it makes
// of each 4096 of them.
inline std::vector<std::uint32_t> sweep_crc32(
    const std::function<std::string(const std::string&)>& encode) {
  const auto utf8 = [](std::uint32_t c) {
    std::string out;
    const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | (c >> 6));
    } else if (c < 0x10000) {
      put(0xE0 | (c >> 12));
      put(0x80 | ((c >> 6) & 0x3F));
    } else {
      put(0xF0 | (c >> 18));
      put(0x80 | ((c >> 12) & 0x3F));
      put(0x80 | ((c >> 6) & 0x3F));
    }
    if (c >= 0x80) put(0x80 | (c & 0x3F));
    return out;
  };
  std::vector<std::uint32_t> blocks;
  for (std::uint32_t block = 0; block < 0x110000; block += 0x1000) {
    std::uint32_t crc = 0;
    for (std::uint32_t c = block; c < block + 0x1000; ++c) {
      if (c < 0xD800 || c > 0xDFFF) crc = crc32(encode(utf8(c)), crc);
    }
    blocks.push_back(crc);
  }
  return blocks;
}

}  // namespace moepack::test
