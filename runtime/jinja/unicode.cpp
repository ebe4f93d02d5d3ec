#include "runtime/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "runtime/jinja/run.h"

namespace moepack::jinja {
namespace {

// Characters whose upper, lower or title case is not one character (Unicode, SpecialCasing.txt);
// utf8proc knows single ones only.
struct SpecialCase {
  char32_t character;
  std::u32string_view upper;
  std::u32string_view title;
};
constexpr std::array<SpecialCase, 15> kSpecialCases = {{
    {0x00DF, U"SS", U"Ss"},
    {0x0149, U"\u02BCN", U"\u02BCN"},
    {0x01F0, U"J\u030C", U"J\u030C"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1E96, U"H\u0331", U"H\u0331"},
    {0x1E97, U"T\u0308", U"T\u0308"},
    {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"},
    {0xFB02, U"FL", U"Fl"},
    {0xFB03, U"FFI", U"Ffi"},
    {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"},
    {0xFB06, U"ST", U"St"},
}};

const SpecialCase* special_case(char32_t character) {
  const auto* const found = std::lower_bound(
      kSpecialCases.begin(), kSpecialCases.end(), character,
      [](const SpecialCase& entry, char32_t wanted) { return entry.character < wanted; });
  return found != kSpecialCases.end() && found->character == character ? found : nullptr;
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool is_cased(char32_t character) {
  return is_upper(character) || is_lower(character) || is_title(character);
}

// A sigma at the end of a word has a form of its own (Unicode, Final_Sigma).
bool ends_word(std::string_view text, std::size_t at) {
  const auto ignorable = [](char32_t character) {
    const auto kind = category(character);
    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
           kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM ||
           kind == UTF8PROC_CATEGORY_SK || character == '\'' || character == '.' ||
           character == ':' || character == 0xB7 || character == 0x2019;
  };
  bool before = false;
  for (std::size_t i = at; i > 0;) {
    i = character_before(text, i);
    std::size_t next = i;
    const char32_t character = take_character(text, next);
    if (ignorable(character)) continue;
    before = is_cased(character);
    break;
  }
  if (!before) return false;
  for (std::size_t i = at + character_bytes(text, at); i < text.size();) {
    const char32_t character = take_character(text, i);
    if (!ignorable(character)) return !is_cased(character);
  }
  return true;
}

void append_upper(char32_t character, bool title, std::string& out) {
  if (const SpecialCase* special = special_case(character)) {
    for (const char32_t one : title ? special->title : special->upper) append_character(one, out);
    return;
  }
  const auto point = static_cast<utf8proc_int32_t>(character);
  append_character(static_cast<char32_t>(title ? utf8proc_totitle(point) : utf8proc_toupper(point)),
                   out);
}

void append_lower(std::string_view text, std::size_t at, char32_t character, std::string& out) {
  if (character == 0x130) {
    out += "i\xCC\x87";
  } else if (character == 0x3A3) {
    append_character(ends_word(text, at) ? 0x3C2 : 0x3C3, out);
  } else {
    append_character(
        static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))), out);
  }
}

}  // namespace

char32_t take_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (size == 1 || at + size > text.size()) {
    ++at;
    return lead;
  }
  char32_t character = lead & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) character = (character << 6) | (byte(at + i) & 0x3FU);
  at += size;
  return character;
}

std::size_t character_bytes(std::string_view text, std::size_t at) {
  std::size_t next = at;
  take_character(text, next);
  return next - at;
}

std::size_t character_before(std::string_view text, std::size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

void append_character(char32_t character, std::string& out) {
  const auto add = [&](char32_t bits) { out += static_cast<char>(bits); };
  if (character < 0x80) {
    add(character);
  } else if (character < 0x800) {
    add(0xC0 | (character >> 6));
    add(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    add(0xE0 | (character >> 12));
    add(0x80 | ((character >> 6) & 0x3F));
    add(0x80 | (character & 0x3F));
  } else {
    add(0xF0 | (character >> 18));
    add(0x80 | ((character >> 12) & 0x3F));
    add(0x80 | ((character >> 6) & 0x3F));
    add(0x80 | (character & 0x3F));
  }
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alphabetic(char32_t character) {
  const auto kind = category(character);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t character) { return category(character) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric(char32_t character) {
  const auto kind = category(character);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t character) {
  return character == '_' || is_alphabetic(character) || is_numeric(character) ||
         (character >= 0x80 && (category(character) == UTF8PROC_CATEGORY_MN ||
                                category(character) == UTF8PROC_CATEGORY_MC ||
                                category(character) == UTF8PROC_CATEGORY_PC));
}

bool is_upper(char32_t character) {
  return utf8proc_isupper(static_cast<utf8proc_int32_t>(character)) != 0;
}

bool is_lower(char32_t character) {
  return utf8proc_islower(static_cast<utf8proc_int32_t>(character)) != 0;
}

bool is_title(char32_t character) { return category(character) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t character) {
  if (character == ' ') return true;
  switch (category(character)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

TextPtr change_case(Run& run, const Text& text, CaseChange change) {
  run.charge_bytes(24 * text.bytes.size());
  TextBuilder out(run);
  auto range = text.user.begin();
  bool within_word = false;
  std::string changed;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const std::size_t begin = at;
    const char32_t character = take_character(text.bytes, at);
    changed.clear();
    const bool first = change == CaseChange::kTitle ? !within_word : begin == 0;
    if (change == CaseChange::kUpper || (change == CaseChange::kSwap && is_lower(character))) {
      append_upper(character, false, changed);
    } else if (change == CaseChange::kLower || change == CaseChange::kSwap || !first) {
      if (change == CaseChange::kSwap && !is_upper(character)) {
        append_character(character, changed);
      } else {
        append_lower(text.bytes, begin, character, changed);
      }
    } else {
      append_upper(character, true, changed);
    }
    within_word = is_cased(character);
    while (range != text.user.end() && range->end <= begin) ++range;
    out.add(changed, range != text.user.end() && range->begin <= begin);
  }
  out.set_safe(text.safe);
  return out.finish();
}

}  // namespace moepack::jinja
