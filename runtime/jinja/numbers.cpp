#include "runtime/jinja/numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

[[noreturn]] void fail_big() { fail("an integer beyond 128 bits", ErrorKind::kLimit); }

int digit_value(char byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  const char lower = static_cast<char>(byte | 0x20);
  return lower >= 'a' && lower <= 'z' ? lower - 'a' + 10 : 99;
}

std::string_view strip_blanks(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t next = begin;
    if (!is_space(take_character(text, next))) break;
    begin = next;
  }
  std::size_t end = text.size();
  while (end > begin) {
    const std::size_t before = character_before(text, end);
    std::size_t at = before;
    if (!is_space(take_character(text, at))) break;
    end = before;
  }
  return text.substr(begin, end - begin);
}

// Without the underscores between digits; nothing where one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text, bool leading) {
  std::string digits;
  char previous = leading ? '0' : '_';
  for (const char byte : text) {
    if (byte == '_' && digit_value(previous) > 35) return std::nullopt;
    if (previous == '_' && !digits.empty() && digit_value(byte) > 35) return std::nullopt;
    if (byte != '_') digits += byte;
    previous = byte;
  }
  if (previous == '_') return std::nullopt;
  return digits;
}

}  // namespace

Integer parse_integer(std::string_view digits, int base) {
  Integer value = 0;
  for (const char byte : digits) {
    value = add_integers(multiply_integers(value, base), digit_value(byte));
  }
  return value;
}

std::optional<Integer> read_integer(std::string_view text, int base) {
  text = strip_blanks(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  bool prefixed = false;
  if (text.size() > 1 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      text.remove_prefix(2);
      prefixed = true;
    }
  }
  const auto digits = without_underscores(text, prefixed);
  if (!digits || digits->empty()) return std::nullopt;
  if (base == 0) {
    base = 10;
    if ((*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos) {
      return std::nullopt;
    }
  }
  if (base < 2 || base > 36) return std::nullopt;
  for (const char byte : *digits) {
    if (digit_value(byte) >= base) return std::nullopt;
  }
  const Integer value = parse_integer(*digits, base);
  return negative ? -value : value;
}

std::optional<double> read_float(std::string_view text) {
  text = strip_blanks(text);
  std::string lower;
  for (const char byte : text)
    lower += static_cast<char>(byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte);
  std::string_view name = lower;
  const bool negative = name.starts_with("-");
  if (!name.empty() && (name[0] == '-' || name[0] == '+')) name.remove_prefix(1);
  if (name == "inf" || name == "infinity") return negative ? -INFINITY : INFINITY;
  if (name == "nan") return std::nan("");
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool digit = digit_value(name[i]) < 10;
    const bool between = i > 0 && i + 1 < name.size() && digit_value(name[i - 1]) < 10 &&
                         digit_value(name[i + 1]) < 10;
    if (!digit && std::string_view(".e+-").find(name[i]) == std::string_view::npos &&
        !(name[i] == '_' && between)) {
      return std::nullopt;
    }
  }
  lower.erase(std::remove(lower.begin(), lower.end(), '_'), lower.end());
  if (name.empty() || digit_value(lower.back()) >= 10) {
    if (lower.empty() || lower.back() != '.') return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size() || end == lower.c_str()) return std::nullopt;
  return value;
}

std::string write_integer(Integer value, int base) {
  __extension__ typedef unsigned __int128 Magnitude;
  const bool negative = value < 0;
  auto rest = static_cast<Magnitude>(value);
  if (negative) rest = 0 - rest;
  std::string digits;
  do {
    digits += "0123456789abcdef"[static_cast<int>(rest % static_cast<unsigned>(base))];
    rest /= static_cast<unsigned>(base);
  } while (rest != 0);
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string write_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  const std::size_t mark = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  std::string digits;
  for (const char byte : text.substr(0, mark)) {
    if (byte != '-' && byte != '.') digits += byte;
  }
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < whole) digits.resize(whole, '0');
  return out + digits.substr(0, whole) + "." + (digits.size() > whole ? digits.substr(whole) : "0");
}

Integer add_integers(Integer a, Integer b) {
  Integer sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) fail_big();
  return sum;
}

Integer subtract_integers(Integer a, Integer b) {
  Integer difference = 0;
  if (__builtin_sub_overflow(a, b, &difference)) fail_big();
  return difference;
}

Integer multiply_integers(Integer a, Integer b) {
  Integer product = 0;
  if (__builtin_mul_overflow(a, b, &product)) fail_big();
  return product;
}

Integer floor_divide(Integer a, Integer b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return subtract_integers(0, a);
  const Integer quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Integer floor_modulo(Integer a, Integer b) {
  if (b == 0) fail("integer division or modulo by zero");
  if (b == -1) return 0;
  const Integer rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_modulo(double a, double b) {
  if (b == 0.0) fail("float modulo");
  const double rest = std::fmod(a, b);
  if (rest == 0.0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double float_floor_divide(double a, double b) {
  if (b == 0.0) fail("float divmod()");
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0.0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1.0;
  }
  if (quotient == 0.0) return std::copysign(0.0, a / b);
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1.0;
  return whole;
}

Integer truncate_float(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (std::fabs(value) >= 0x1p126) fail_big();
  return static_cast<Integer>(value);
}

}  // namespace moepack::jinja
