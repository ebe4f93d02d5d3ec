// The Unicode facts in which the reference tokenizer departs from the libraries used here.
//
// The reference (HuggingFace `tokenizers`) mixes three Unicode versions: its regex engine
// (Oniguruma 6.9.10) knows categories of 16.0, its normalizer knows 9.0, and \w and \s around added
// tokens are those of the Rust regex crate. PCRE2 and utf8proc bring versions of their own. The
// tables state the differences, found by asking the reference about every code point and checked
// in the tests against the libraries.
#pragma once

#include <span>
#include <string_view>

namespace moepack {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

struct CategoryRange {
  char32_t first;
  char32_t last;
  char category[3];  // two letters, e.g. "Lu"
};

// Code points that Unicode 15.0 to 16.0 assigned: PCRE2 10.42 has the categories of 14.0.
// Of the older ones only U+1171E moved, from Mn to Mc.
std::span<const CategoryRange> categories_since_unicode_14();
// True if valid UTF-8 holds one of them.
bool has_character_since_unicode_14(std::string_view text);

// Characters that take part in normalization today but did not exist for Unicode 9.0: for the
// reference they neither move, combine nor decompose. Sorted.
bool is_inert_in_unicode_9(char32_t character);

// The property White_Space, which the reference's \s is. Sorted.
std::span<const CodePointRange> white_space();
bool is_white_space(char32_t character);

// Word characters beyond the categories L, M, Nd, Nl and Pc: the other alphabetic symbols.
std::span<const CodePointRange> alphabetic_symbols();
// \w of the Rust regex crate.
bool is_word_character(char32_t character);

}  // namespace moepack
