// From the regex dialect of tokenizer.json files (Oniguruma, Ruby syntax, UTF-8) to PCRE2's.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/status.h"

namespace moepack {

// Which characters \p{…}, \d and \w know.
enum class CategoryData {
  kComplete,  // those of Unicode 16.0
  kLibrary,   // those PCRE2 knows: faster, and the same for text without younger characters
};

// Gives a pattern for PCRE2 with PCRE2_UTF | PCRE2_UCP and newline LF that matches exactly what
// Oniguruma 6.9.10 matches with `pattern`. Character classes are written out where the two differ:
// \s is White_Space, and categories are extended. Pure; any number of threads.
//
// These are understood: literals, classes, alternation, groups, (?i:…), look-around, atomic groups,
// greedy, lazy and possessive quantifiers, ^ $ . \s \S \d \D \w \W \p{…} \P{…} of categories and of
// Han, and classes [A&&[B]] and [A&&[^B]]. Everything else is
// kUnsupported with its position: the two engines would disagree, or nobody has checked. Captures
// are made non-capturing; the result is only good for finding matches.
Result<std::string> translate_regex(std::string_view pattern, CategoryData data,
                                    const Where& where);

// Gives a pattern for PCRE2 that matches `text` literally.
std::string quote_for_regex(std::string_view text);

}  // namespace moepack
