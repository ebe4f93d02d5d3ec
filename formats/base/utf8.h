// UTF-8: validation, decoding, and the replacement of what is not UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moepack {

// Where the first invalid sequence starts (overlong forms, surrogates and values beyond U+10FFFF
// are invalid), or npos.
std::size_t find_invalid_utf8(std::string_view text);

// The character that starts at `*at`, which moves behind it. The text must be valid UTF-8 and
// `*at` must point to the first byte of a character.
char32_t next_character(const char** at);

// The character that ends just before `*at`, which moves to its first byte. There must be one.
char32_t previous_character(const char** at);

void append_utf8(char32_t character, std::string& out);

// Appends `bytes` to `out`; every maximal part that can start no character becomes one U+FFFD
// (Unicode 15.0, section 3.9, "U+FFFD substitution of maximal subparts", as Rust's
// from_utf8_lossy). An incomplete but so far valid character at the end is left out unless
// `at_end`. Returns the number of bytes consumed.
std::size_t append_lossy_utf8(std::string_view bytes, bool at_end, std::string& out);

}  // namespace moepack
