// One field of a format: width, fill, sign, precision and kind.
#pragma once

#include <string>
#include <string_view>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

struct FormatSpec {
  std::string fill = " ";  // one character
  char align = 0;          // '<', '>', '^', '='; 0: the kind's own
  bool zeros = false;      // "0" before the width: numbers are filled behind their sign
  char sign = '-';         // '-', '+' or ' '
  bool alternate = false;  // '#'
  char group = 0;          // ',' or '_' between thousands
  std::int64_t width = 0;
  std::int64_t precision = -1;  // -1: none
  char kind = 0;                // 's', 'd', 'f' …; 0: the value's own
};

// What stands behind the colon of a field; throws for what is none.
FormatSpec read_format_spec(std::string_view text);
// The digits of a real number in kind e, f, g, E, F, G or %, without sign.
std::string format_real(double magnitude, char kind, std::int64_t precision, bool alternate);
// Adds `text` to `out`, filled to the width.
void add_padded(Run& run, TextBuilder& out, const Text& text, const FormatSpec& spec, char align);
// `digits` with its sign or prefix in front, filled as `spec` says.
void add_number(Run& run, TextBuilder& out, std::string_view prefix, std::string digits,
                const FormatSpec& spec);
// format(value, spec)
void add_formatted(Run& run, TextBuilder& out, const Value& value, const FormatSpec& spec);

constexpr std::int64_t kMaxFormatDigits = 4096;

}  // namespace moepack::jinja
