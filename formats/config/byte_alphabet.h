// The characters as which byte-level BPE writes bytes. Source: GPT-2's bytes_to_unicode. The bytes
// 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF are the characters with these numbers; the other 68 bytes, in
// order, are U+0100 and on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moepack {

// The bytes that `token` (UTF-8) stands for. False if a character is not in the alphabet; *bytes is
// then of no use.
bool from_byte_alphabet(std::string_view token, std::string* bytes);

// The character of one byte, in UTF-8.
std::string to_byte_alphabet(std::uint8_t byte);

}  // namespace moepack
