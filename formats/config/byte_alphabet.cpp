#include "formats/config/byte_alphabet.h"

#include <array>

namespace moepack {
namespace {

constexpr std::size_t kAlphabetEnd = 0x144;

struct Alphabet {
  std::array<std::int16_t, kAlphabetEnd> byte_of;  // by code point; -1: not in the alphabet
  std::array<std::uint16_t, 256> code_of;          // by byte
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet{};
  alphabet.byte_of.fill(-1);
  std::uint16_t next = 0x100;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    const bool is_itself =
        (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const std::uint16_t code = is_itself ? byte : next++;
    alphabet.code_of[byte] = code;
    alphabet.byte_of[code] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

bool from_byte_alphabet(std::string_view token, std::string* bytes) {
  bytes->clear();
  for (std::size_t i = 0; i < token.size(); ++i) {
    std::size_t code = static_cast<unsigned char>(token[i]);
    if (code >= 0x80) {  // the alphabet ends below U+0800: two bytes
      if ((code & 0xe0) != 0xc0 || i + 1 == token.size()) return false;
      code = (code & 0x1f) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3fU);
    }
    if (code >= kAlphabetEnd || kAlphabet.byte_of[code] < 0) return false;
    *bytes += static_cast<char>(kAlphabet.byte_of[code]);
  }
  return true;
}

std::string to_byte_alphabet(std::uint8_t byte) {
  const std::uint16_t code = kAlphabet.code_of[byte];
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace moepack
