// Cutting and filling of texts, shared by methods and filters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

// At most `most` cuts, negative: all; counted from the end for `from_right`.
std::vector<Value> split_text(Run& run, const TextPtr& text, const Text& separator,
                              std::int64_t most, bool from_right);
// At runs of blanks, as str.split() without arguments.
std::vector<Value> split_blanks(Run& run, const TextPtr& text, std::int64_t most, bool from_right);
// `align`: '<', '>' or '^' as str.ljust, rjust and center; `fill` is one character.
TextPtr pad_text(Run& run, const Text& text, std::int64_t width, const std::string& fill,
                 char align);
// Where `wanted` is in `text`, npos: nowhere; the first from byte `from`, or the last. Both take
// time that grows with the sum of the sizes only, and charge it.
std::size_t find_part(Run& run, std::string_view text, std::string_view wanted, std::size_t from);
std::size_t rfind_part(Run& run, std::string_view text, std::string_view wanted);
// str.isupper or str.islower.
bool has_case(const Text& text, bool upper);

}  // namespace moepack::jinja
