// Python's view of characters: what is blank, a letter of a name, and how case changes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/jinja/text.h"

namespace moepack::jinja {

// The character at byte `at`, which moves behind it. Broken bytes are taken one by one.
char32_t take_character(std::string_view text, std::size_t& at);
std::size_t character_bytes(std::string_view text, std::size_t at);
// The byte where the character that ends before `at` begins.
std::size_t character_before(std::string_view text, std::size_t at);
void append_character(char32_t character, std::string& out);

bool is_space(char32_t character);       // str.isspace
bool is_line_break(char32_t character);  // what str.splitlines breaks at
bool is_word(char32_t character);        // \w
bool is_alphabetic(char32_t character);  // str.isalpha
bool is_decimal(char32_t character);     // str.isdecimal
bool is_digit(char32_t character);       // str.isdigit
bool is_numeric(char32_t character);     // str.isnumeric
bool is_upper(char32_t character);       // str.isupper of one character
bool is_lower(char32_t character);
bool is_title(char32_t character);
bool is_printable(char32_t character);  // what repr() writes as it is

enum class CaseChange { kUpper, kLower, kTitle, kCapitalize, kSwap };
// As the str methods of that name; ranges from users keep their characters.
TextPtr change_case(Run& run, const Text& text, CaseChange change);

}  // namespace moepack::jinja
