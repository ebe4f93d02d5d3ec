#include "runtime/jinja/format_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "runtime/jinja/numbers.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

bool is_align(char byte) { return byte == '<' || byte == '>' || byte == '^' || byte == '='; }

bool take(std::string_view& text, std::string_view allowed, char& found) {
  if (text.empty() || allowed.find(text[0]) == std::string_view::npos) return false;
  found = text[0];
  text.remove_prefix(1);
  return true;
}

bool take_count(std::string_view& text, std::int64_t& count) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return false;
  count = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    count = std::min<std::int64_t>(count * 10 + (text[0] - '0'), 1LL << 40);
    text.remove_prefix(1);
  }
  return true;
}

std::string grouped(const std::string& digits, const FormatSpec& spec, std::size_t group) {
  const std::size_t whole =
      std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out += spec.group;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

void add_fill(Run& run, TextBuilder& out, const std::string& fill, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    run.charge(1);
    out.add(fill);
  }
}

[[noreturn]] void fail_kind(const FormatSpec& spec, const Value& value) {
  fail(std::string("Unknown format code '") + spec.kind + "' for object of type '" +
       type_name(value) + "'");
}

void add_integer(Run& run, TextBuilder& out, const Value& value, const FormatSpec& spec) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  const Integer integer = *value.index();
  if (spec.kind == 'c') {
    if (integer < 0 || integer > 0x10FFFF) fail("%c arg not in range(0x110000)");
    std::string character;
    append_character(static_cast<char32_t>(integer), character);
    return add_padded(run, out, *make_text(character), spec, '<');
  }
  const int base = spec.kind == 'x' || spec.kind == 'X' ? 16
                   : spec.kind == 'o'                   ? 8
                   : spec.kind == 'b'                   ? 2
                                                        : 10;
  std::string digits = write_integer(integer, base);
  std::string prefix;
  if (digits[0] == '-') digits.erase(0, 1);
  prefix = integer < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.alternate && base != 10) prefix += std::string("0") + spec.kind;
  if (spec.kind == 'X') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return static_cast<char>(c >= 'a' ? c - 32 : c); });
  }
  if (spec.group == ',' && base != 10) fail("Cannot specify ',' with this format");
  if (spec.group != 0) digits = grouped(digits, spec, base == 10 ? 3 : 4);
  add_number(run, out, prefix, std::move(digits), spec);
}

void add_real(Run& run, TextBuilder& out, double value, const FormatSpec& spec) {
  if (spec.precision > kMaxFormatDigits) {
    fail("a precision beyond " + std::to_string(kMaxFormatDigits), ErrorKind::kLimit);
  }
  std::string digits;
  const double magnitude = std::fabs(value);
  if (spec.kind == 0 && spec.precision < 0) {
    digits = write_float(magnitude);
  } else if (spec.kind == 0) {
    digits = format_real(magnitude, 'g', std::max<std::int64_t>(spec.precision, 1), false);
    const bool plain = digits.find_first_not_of("0123456789") == std::string::npos;
    if (plain &&
        static_cast<std::int64_t>(digits.size()) >= std::max<std::int64_t>(spec.precision, 1)) {
      std::string shown =
          format_real(magnitude, 'e', std::max<std::int64_t>(spec.precision, 1) - 1, false);
      const std::size_t mark = shown.find('e');
      std::string mantissa = shown.substr(0, mark);
      if (mantissa.find('.') != std::string::npos) {
        mantissa.erase(mantissa.find_last_not_of('0') + 1);
        if (mantissa.back() == '.') mantissa.pop_back();
      }
      digits = mantissa + shown.substr(mark);
    } else if (plain) {
      digits += ".0";
    }
  } else {
    digits = format_real(magnitude, spec.kind, spec.precision, spec.alternate);
  }
  if (spec.group != 0) digits = grouped(digits, spec, 3);
  const bool negative = std::signbit(value) && !std::isnan(value);
  const std::string prefix = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  add_number(run, out, prefix, std::move(digits), spec);
}

}  // namespace

FormatSpec read_format_spec(std::string_view text) {
  FormatSpec spec;
  if (!text.empty()) {
    const std::size_t first = character_bytes(text, 0);
    if (text.size() > first && is_align(text[first])) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else {
      take(text, "<>^=", spec.align);
    }
  }
  take(text, "+- ", spec.sign);
  char found = 0;
  spec.alternate = take(text, "#", found);
  if (spec.align == 0 && text.starts_with("0")) {
    spec.fill = "0";
    spec.zeros = true;
  } else if (text.starts_with("0") && spec.fill == " ") {
    spec.fill = "0";
  }
  take_count(text, spec.width);
  take(text, ",_", spec.group);
  if (take(text, ".", found) && !take_count(text, spec.precision)) {
    fail("Format specifier missing precision");
  }
  if (text.size() > 1) fail("Invalid format specifier");
  if (!text.empty()) spec.kind = text[0];
  return spec;
}

std::string format_real(double magnitude, char kind, std::int64_t precision, bool alternate) {
  const bool upper = kind >= 'A' && kind <= 'Z';
  if (std::isnan(magnitude)) return upper ? "NAN" : "nan";
  if (std::isinf(magnitude)) return std::string(upper ? "INF" : "inf") + (kind == '%' ? "%" : "");
  const bool percent = kind == '%';
  if (percent) magnitude *= 100;
  const char form[] = {'%',
                       alternate ? '#' : '.',
                       alternate ? '.' : '*',
                       alternate ? '*' : 'l',
                       alternate ? 'l' : (percent ? 'f' : kind),
                       alternate ? (percent ? 'f' : kind) : '\0',
                       '\0'};
  std::array<char, kMaxFormatDigits + 400> buffer{};
  const int digits = static_cast<int>(precision < 0 ? 6 : precision);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int size = std::snprintf(buffer.data(), buffer.size(), form, digits, magnitude);
#pragma GCC diagnostic pop
  std::string text(buffer.data(), static_cast<std::size_t>(size));
  return percent ? text + "%" : text;
}

void add_padded(Run& run, TextBuilder& out, const Text& text, const FormatSpec& spec, char align) {
  const auto size = static_cast<std::int64_t>(text.characters);
  const std::int64_t room = std::max<std::int64_t>(spec.width - size, 0);
  if (spec.align != 0) align = spec.align;
  const std::int64_t before = align == '<' ? 0 : align == '^' ? room / 2 : room;
  add_fill(run, out, spec.fill, before);
  out.add(text);
  add_fill(run, out, spec.fill, room - before);
}

void add_number(Run& run, TextBuilder& out, std::string_view prefix, std::string digits,
                const FormatSpec& spec) {
  if (spec.align != '=' && !(spec.align == 0 && spec.zeros)) {
    return add_padded(run, out, *make_text(std::string(prefix) + digits), spec, '>');
  }
  const auto size = static_cast<std::int64_t>(prefix.size() + digits.size());
  out.add(prefix);
  add_fill(run, out, spec.fill, spec.width - size);
  out.add(digits);
}

void add_formatted(Run& run, TextBuilder& out, const Value& value, const FormatSpec& spec) {
  static constexpr std::string_view kRealKinds = "eEfFgG%";
  const bool real_kind = spec.kind != 0 && kRealKinds.find(spec.kind) != std::string_view::npos;
  if (spec.kind == 'n') fail("the format code 'n' is not supported", ErrorKind::kUnsupported);
  if (const TextPtr* text = value.as<TextPtr>()) {
    if (spec.kind != 0 && spec.kind != 's') fail_kind(spec, value);
    if (spec.align == '=' || spec.sign != '-' || spec.alternate || spec.group != 0) {
      fail("this format is not allowed for a string");
    }
    const auto size = static_cast<std::int64_t>((*text)->characters);
    if (spec.precision < 0 || spec.precision >= size) {
      return add_padded(run, out, **text, spec, '<');
    }
    const std::size_t end = byte_offset(**text, static_cast<std::size_t>(spec.precision));
    return add_padded(run, out, *slice_bytes(run, *text, 0, end), spec, '<');
  }
  if (const double* real = value.as<double>()) {
    if (spec.kind != 0 && !real_kind) fail_kind(spec, value);
    return add_real(run, out, *real, spec);
  }
  if (value.index()) {
    if (real_kind) return add_real(run, out, static_cast<double>(*value.index()), spec);
    if (spec.kind != 0 && std::string_view("bcdoxX").find(spec.kind) == std::string_view::npos) {
      fail_kind(spec, value);
    }
    return add_integer(run, out, value, spec);
  }
  fail("unsupported format string passed to " + type_name(value) + ".__format__");
}

}  // namespace moepack::jinja
