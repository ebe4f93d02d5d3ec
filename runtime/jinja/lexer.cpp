#include "runtime/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "runtime/jinja/numbers.h"
#include "runtime/jinja/unicode.h"

namespace moepack::jinja {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_ascii_digit(char byte) { return byte >= '0' && byte <= '9'; }

// Where the run of blanks that starts at `at` ends.
std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    std::size_t next = at;
    if (!is_space(take_character(text, next))) break;
    at = next;
  }
  return at;
}

std::size_t strip_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::size_t before = character_before(text, end);
    std::size_t at = before;
    if (!is_space(take_character(text, at))) break;
    end = before;
  }
  return end;
}

std::string normal_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string source, Position& at) : source_(std::move(source)), at_(at) {}
  std::vector<Token> run();

 private:
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }
  bool sees(std::string_view what) const { return rest().starts_with(what); }
  void place(std::size_t offset);
  void push(TokenKind kind, std::string text, std::size_t offset);
  void take_data();
  bool take_raw_begin(std::size_t tag, char& sign, std::size_t& end) const;
  void take_raw(std::size_t end);
  void add_data(std::size_t end, char sign, bool lstrip);
  void skip_comment();
  void take_tag(bool block);
  bool take_tag_end(bool block);
  void take_token();
  bool take_number();
  std::size_t float_end() const;
  void take_name();
  void take_string();
  void take_operator();

  std::string source_;
  Position& at_;
  std::size_t pos_ = 0;
  std::size_t placed_ = 0;  // offset to which at_ has been counted
  bool line_starting_ = true;
  std::string brackets_;  // closing brackets that are awaited
  std::vector<Token> tokens_;
};

void Lexer::place(std::size_t offset) {
  for (; placed_ < offset; ++placed_) {
    const char byte = source_[placed_];
    if (byte == '\n') {
      ++at_.line;
      at_.column = 1;
    } else if ((static_cast<unsigned char>(byte) & 0xC0) != 0x80) {
      ++at_.column;
    }
  }
}

void Lexer::push(TokenKind kind, std::string text, std::size_t offset) {
  place(offset);
  tokens_.push_back(Token{kind, std::move(text), Value(), at_});
}

std::vector<Token> Lexer::run() {
  while (pos_ < source_.size()) take_data();
  push(TokenKind::kEnd, "", source_.size());
  return std::move(tokens_);
}

// Blanks between the last line break and a block go (lstrip_blocks), or all before a "-".
void Lexer::add_data(std::size_t end, char sign, bool lstrip) {
  std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
  if (sign == '-') {
    text = text.substr(0, strip_end(text));
  } else if (sign != '+' && lstrip) {
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if ((line > 0 || line_starting_) && line < text.size() &&
        skip_spaces(text, line) == text.size()) {
      text = text.substr(0, line);
    }
  }
  if (!text.empty()) push(TokenKind::kData, std::string(text), pos_);
}

// {% raw %} with any sign and blanks; its end is one without trim_blocks.
bool Lexer::take_raw_begin(std::size_t tag, char& sign, std::size_t& end) const {
  std::size_t at = tag + 2;
  const std::string_view text = source_;
  sign = 0;
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) sign = text[at++];
  at = skip_spaces(text, at);
  if (!text.substr(at).starts_with("raw")) return false;
  at = skip_spaces(text, at + 3);
  if (text.substr(at).starts_with("-%}")) {
    end = skip_spaces(text, at + 3);
    return true;
  }
  end = at + 2;
  return text.substr(at).starts_with("%}");
}

void Lexer::take_data() {
  std::size_t tag = pos_;
  for (;; ++tag) {
    tag = source_.find('{', tag);
    if (tag == std::string::npos || tag + 1 >= source_.size()) {
      push(TokenKind::kData, std::string(rest()), pos_);
      pos_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    if (kind == '{' || kind == '%' || kind == '#') break;
  }
  const char kind = source_[tag + 1];
  char sign = 0;
  std::size_t raw_end = 0;
  if (kind == '%' && take_raw_begin(tag, sign, raw_end)) {
    add_data(tag, sign, true);
    line_starting_ = source_[raw_end - 1] == '\n';
    return take_raw(raw_end);
  }
  std::size_t inside = tag + 2;
  sign = 0;
  if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+')) {
    sign = source_[inside++];
  }
  add_data(tag, sign, kind != '{');
  if (kind != '#') push(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "", tag);
  place(tag);
  pos_ = inside;
  line_starting_ = false;
  kind == '#' ? skip_comment() : take_tag(kind == '%');
}

void Lexer::take_raw(std::size_t begin) {
  pos_ = begin;
  if (begin == source_.size()) return;  // jinja2 lets this pass, and so a comment's begin
  const std::string_view text = source_;
  for (std::size_t tag = text.find("{%", begin); tag != std::string_view::npos;
       tag = text.find("{%", tag + 1)) {
    std::size_t at = tag + 2;
    char sign = 0;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) sign = text[at++];
    at = skip_spaces(text, at);
    if (!text.substr(at).starts_with("endraw")) continue;
    at = skip_spaces(text, at + 6);
    const std::string_view tail = text.substr(at);
    if (tail.starts_with("+%}")) {
      at += 3;
    } else if (tail.starts_with("-%}")) {
      at = skip_spaces(text, at + 3);
    } else if (tail.starts_with("%}")) {
      at += tail.starts_with("%}\n") ? 3U : 2U;
    } else {
      continue;
    }
    add_data(tag, sign, true);
    line_starting_ = source_[at - 1] == '\n';
    pos_ = at;
    return;
  }
  place(begin);
  fail("Missing end of raw directive", ErrorKind::kSyntax);
}

void Lexer::skip_comment() {
  if (pos_ == source_.size()) return;
  const std::size_t end = source_.find("#}", pos_);
  if (end == std::string::npos) fail("Missing end of comment tag", ErrorKind::kSyntax);
  const char sign = end > pos_ ? source_[end - 1] : '\0';
  pos_ = end + 2;
  if (sign == '-') {
    pos_ = skip_spaces(source_, pos_);
  } else if (sign != '+' && sees("\n")) {
    ++pos_;
  }
  line_starting_ = source_[pos_ - 1] == '\n';
}

bool Lexer::take_tag_end(bool block) {
  if (!brackets_.empty()) return false;
  const std::size_t begin = pos_;
  const std::string_view end = block ? "%}" : "}}";
  if (sees(end)) {
    pos_ += 2;
    if (block && sees("\n")) ++pos_;
  } else if (sees("-") && rest().substr(1).starts_with(end)) {
    pos_ = skip_spaces(source_, pos_ + 3);
  } else if (block && sees("+%}")) {
    pos_ += 3;
  } else {
    return false;
  }
  push(block ? TokenKind::kBlockEnd : TokenKind::kVariableEnd, "", begin);
  line_starting_ = source_[pos_ - 1] == '\n';
  return true;
}

void Lexer::take_tag(bool block) {
  while (pos_ < source_.size()) {
    if (take_tag_end(block)) return;
    take_token();
  }
}

void Lexer::take_token() {
  const std::size_t blanks = skip_spaces(source_, pos_);
  if (blanks > pos_) {
    pos_ = blanks;
    return;
  }
  place(pos_);
  std::size_t next = pos_;
  const char32_t first = take_character(source_, next);
  if (take_number()) return;
  if (is_word(first)) return take_name();
  if (first == '"' || first == '\'') return take_string();
  take_operator();
}

// Behind digits that may have single underscores between them; `from` where there are none.
std::size_t digits_end(std::string_view text, std::size_t from, int base) {
  const auto is_digit_of = [base](char byte) {
    if (base == 16 && ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')) return true;
    return byte >= '0' && byte < '0' + std::min(base, 10);
  };
  std::size_t at = from;
  while (at < text.size()) {
    if (is_digit_of(text[at])) {
      ++at;
    } else if (text[at] == '_' && at + 1 < text.size() && is_digit_of(text[at + 1])) {
      at += 2;
    } else {
      break;
    }
  }
  return at;
}

std::size_t Lexer::float_end() const {
  const std::string_view text = source_;
  if (pos_ > 0 && text[pos_ - 1] == '.') return 0;
  std::size_t at = digits_end(text, pos_, 10);
  bool real = false;
  if (at + 1 < text.size() && text[at] == '.' && is_ascii_digit(text[at + 1])) {
    at = digits_end(text, at + 1, 10);
    real = true;
  }
  if (at < text.size() && (text[at] | 0x20) == 'e') {
    std::size_t exponent = at + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_ascii_digit(text[exponent])) {
      at = digits_end(text, exponent, 10);
      real = true;
    }
  }
  return real ? at : 0;
}

bool Lexer::take_number() {
  const std::string_view text = source_;
  if (!is_ascii_digit(text[pos_])) return false;
  const std::size_t real = float_end();
  std::size_t end = real;
  int base = 10;
  if (real == 0) {
    const char mark = pos_ + 1 < text.size() ? static_cast<char>(text[pos_ + 1] | 0x20) : '\0';
    base = text[pos_] != '0' ? 10 : mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    const std::size_t digits = base == 10 ? pos_ : pos_ + 2;
    const std::size_t skip =
        base != 10 && digits < text.size() && text[digits] == '_' ? digits + 1 : digits;
    end =
        base == 10 && text[pos_] == '0' ? digits_end(text, pos_, 1) : digits_end(text, skip, base);
    if (base != 10 && end == skip) {  // "0x" alone is a zero and a name
      base = 10;
      end = pos_ + 1;
    }
  }
  std::string digits;
  for (const char byte : text.substr(pos_, end - pos_)) {
    if (byte != '_') digits += byte;
  }
  push(real != 0 ? TokenKind::kFloat : TokenKind::kInteger, digits, pos_);
  tokens_.back().number = real != 0
                              ? Value(std::strtod(digits.c_str(), nullptr))
                              : Value(parse_integer(base == 10 ? digits : digits.substr(2), base));
  pos_ = end;
  return true;
}

void Lexer::take_name() {
  const std::size_t begin = pos_;
  while (pos_ < source_.size()) {
    std::size_t next = pos_;
    if (!is_word(take_character(source_, next))) break;
    pos_ = next;
  }
  std::size_t first = begin;
  const char32_t initial = take_character(source_, first);
  if (is_decimal(initial)) fail("Invalid character in identifier", ErrorKind::kSyntax);
  push(TokenKind::kName, source_.substr(begin, pos_ - begin), begin);
}

void Lexer::take_operator() {
  for (const std::string_view op : kOperators) {
    if (!sees(op)) continue;
    if (op == "(" || op == "[" || op == "{") {
      brackets_ += op == "(" ? ')' : op == "[" ? ']' : '}';
    } else if (op == ")" || op == "]" || op == "}") {
      if (brackets_.empty()) fail("unexpected '" + std::string(op) + "'", ErrorKind::kSyntax);
      if (brackets_.back() != op[0]) {
        fail("unexpected '" + std::string(op) + "', expected '" + brackets_.back() + "'",
             ErrorKind::kSyntax);
      }
      brackets_.pop_back();
    }
    push(TokenKind::kOperator, std::string(op), pos_);
    pos_ += op.size();
    return;
  }
  fail("unexpected character in a tag", ErrorKind::kSyntax);
}

// Reads `digits` hexadecimal digits behind `at`.
char32_t take_hex(std::string_view text, std::size_t& at, std::size_t digits) {
  char32_t value = 0;
  const char* const begin = text.data() + at;
  const char* const end = begin + std::min(digits, text.size() - at);
  const auto [stop, error] =
      std::from_chars(begin, end, reinterpret_cast<std::uint32_t&>(value), 16);
  if (error != std::errc() || stop != begin + digits) {
    fail("truncated escape in a string", ErrorKind::kSyntax);
  }
  at += digits;
  return value;
}

// What stands behind a backslash, as Python's "unicode-escape" reads it.
void unescape(std::string_view text, std::size_t& at, std::string& out) {
  static constexpr std::string_view kPlain = "abfnrtv\\'\"";
  static constexpr std::string_view kMeaning = "\a\b\f\n\r\t\v\\'\"";
  const char byte = text[at];
  if (const std::size_t plain = kPlain.find(byte); plain != std::string_view::npos) {
    out += kMeaning[plain];
    ++at;
  } else if (byte == '\n') {
    ++at;
  } else if (byte >= '0' && byte <= '7') {
    char32_t value = 0;
    for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i) {
      value = value * 8 + static_cast<char32_t>(text[at++] - '0');
    }
    append_character(value, out);
  } else if (byte == 'x' || byte == 'u' || byte == 'U') {
    ++at;
    const char32_t value = take_hex(text, at, byte == 'x' ? 2 : byte == 'u' ? 4 : 8);
    if (value > 0x10FFFF) fail("illegal Unicode character", ErrorKind::kSyntax);
    append_character(value, out);
  } else if (byte == 'N') {
    fail("\\N{…} in a string is not supported", ErrorKind::kUnsupported);
  } else {
    out += '\\';
    if (static_cast<unsigned char>(byte) < 0x80) {
      out += byte;
      ++at;
      return;
    }
    // jinja2 writes such a character as an escape first, whose backslash this one swallows.
    const char32_t character = take_character(text, at);
    std::array<char, 16> name{};
    const char* const form = character < 0x100 ? "x%02x" : character < 0x10000 ? "u%04x" : "U%08x";
    std::snprintf(name.data(), name.size(), form, static_cast<unsigned>(character));
    out += name.data();
  }
}

void Lexer::take_string() {
  const char quote = source_[pos_];
  std::size_t end = pos_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2U : 1U;
  if (end >= source_.size()) fail("a string without its end", ErrorKind::kSyntax);
  const std::string_view body = std::string_view(source_).substr(pos_ + 1, end - pos_ - 1);
  std::string text;
  for (std::size_t at = 0; at < body.size();) {
    if (body[at] != '\\') {
      text += body[at++];
    } else {
      unescape(body, ++at, text);
    }
  }
  push(TokenKind::kString, std::move(text), pos_);
  pos_ = end + 1;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source, Position& at) {
  return Lexer(normal_newlines(source), at).run();
}

}  // namespace moepack::jinja
