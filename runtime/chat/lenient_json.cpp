#include "runtime/chat/lenient_json.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <nlohmann/json.hpp>

namespace moepack {
namespace {

constexpr std::size_t kMostOpenBrackets = 60;
constexpr std::size_t kLongestJsonWord = 400;

bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_json_digit(char c) { return c >= '0' && c <= '9'; }

bool is_json_word_char(char c) {
  return is_json_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
         c == '-' || c == '.' || c == '_';
}

void append_json_char(char c, std::string& out) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (byte >= 0x20) {
    out += c;
  } else {
    out += "\\u00";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
}

std::size_t skip_json_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_json_digit(text[at])) ++at;
  return at;
}

bool has_json_number_form(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const std::size_t whole = at;
  at = skip_json_digits(text, at);
  if (at == whole || (text[whole] == '0' && at > whole + 1)) return false;
  if (at < text.size() && text[at] == '.') {
    const std::size_t fraction = ++at;
    at = skip_json_digits(text, at);
    if (at == fraction) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    if (++at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const std::size_t exponent = at;
    at = skip_json_digits(text, at);
    if (at == exponent) return false;
  }
  return at == text.size();
}

// 0 for anything but hexadecimal digits.
unsigned hex_number(std::string_view digits) {
  unsigned number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

}  // namespace

bool is_json_number(std::string_view text) {
  if (!has_json_number_form(text)) return false;
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc{};
}

LenientJson::Step LenientJson::fail() {
  state_ = State::kBad;
  return Step::kBad;
}

LenientJson::Step LenientJson::end_value() {
  state_ = open_.empty() ? State::kDone : State::kAfterValue;
  return open_.empty() ? Step::kDone : Step::kMore;
}

void LenientJson::write_comma(std::string& out) {
  if (owes_comma_) out += ',';
  owes_comma_ = false;
}

LenientJson::Step LenientJson::feed(char c, std::string& out) {
  switch (state_) {
    case State::kString:
      return feed_string(c, out);
    case State::kEscape:
      return feed_escape(c, out);
    case State::kHex:
      return feed_hex(c, out);
    case State::kWord:
      return feed_word(c, out);
    case State::kDone:
      return Step::kDoneBefore;
    case State::kBad:
      return Step::kBad;
    default:
      break;
  }
  if (is_json_space(c)) return Step::kMore;
  switch (state_) {
    case State::kKeyOrEnd:
      return feed_key(c, out);
    case State::kAfterValue:
      return feed_after_value(c, out);
    case State::kColon:
      if (c != ':') return fail();
      out += ':';
      state_ = State::kValue;
      return Step::kMore;
    default:
      return feed_value(c, out);
  }
}

LenientJson::Step LenientJson::feed_value(char c, std::string& out) {
  if (state_ == State::kValueOrEnd && (c == ']' || c == ')')) return close_container(c, out);
  if (c == '"' || c == '\'') return open_string(c, false, out);
  if (c == '{' || c == '[' || c == '(') {
    if (open_.size() >= kMostOpenBrackets) return fail();
    write_comma(out);
    out += c == '{' ? '{' : '[';
    open_ += c;
    state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
    return Step::kMore;
  }
  if (!is_json_word_char(c)) return fail();
  word_.assign(1, c);
  state_ = State::kWord;
  return Step::kMore;
}

LenientJson::Step LenientJson::feed_key(char c, std::string& out) {
  if (c == '}') return close_container(c, out);
  if (c == '"' || c == '\'') return open_string(c, true, out);
  return fail();
}

LenientJson::Step LenientJson::feed_after_value(char c, std::string& out) {
  if (c != ',') return close_container(c, out);
  owes_comma_ = true;
  state_ = open_.back() == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
  return Step::kMore;
}

LenientJson::Step LenientJson::close_container(char c, std::string& out) {
  const char opened = c == '}' ? '{' : c == ']' ? '[' : c == ')' ? '(' : '\0';
  if (open_.empty() || open_.back() != opened) return fail();
  open_.pop_back();
  owes_comma_ = false;
  out += c == '}' ? '}' : ']';
  return end_value();
}

LenientJson::Step LenientJson::open_string(char c, bool is_key, std::string& out) {
  write_comma(out);
  out += '"';
  quote_ = c;
  is_key_ = is_key;
  state_ = State::kString;
  return Step::kMore;
}

void LenientJson::write_half_pair(std::string& out) {
  if (has_half_pair_) out += "\\ufffd";
  has_half_pair_ = false;
}

LenientJson::Step LenientJson::feed_string(char c, std::string& out) {
  if (c == '\\') {
    state_ = State::kEscape;
    return Step::kMore;
  }
  write_half_pair(out);
  if (c != quote_) {
    append_json_char(c, out);
    return Step::kMore;
  }
  out += '"';
  if (!is_key_) return end_value();
  state_ = State::kColon;
  return Step::kMore;
}

LenientJson::Step LenientJson::feed_escape(char c, std::string& out) {
  state_ = State::kString;
  if (c == 'u') {
    word_.clear();
    state_ = State::kHex;
    return Step::kMore;
  }
  write_half_pair(out);
  if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    out += '\\';
    out += c;
  } else {
    if (c != '\'') out += "\\\\";  // no escape of JSON: the backslash is a character
    append_json_char(c, out);
  }
  return Step::kMore;
}

LenientJson::Step LenientJson::feed_hex(char c, std::string& out) {
  if (!is_json_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F')) return fail();
  word_ += c;
  if (word_.size() < 4) return Step::kMore;
  state_ = State::kString;
  const unsigned unit = hex_number(word_);
  if (unit >= 0xDC00 && unit <= 0xDFFF) {
    out += has_half_pair_ ? "\\u" + half_pair_ + "\\u" + word_ : "\\ufffd";
    has_half_pair_ = false;
    return Step::kMore;
  }
  write_half_pair(out);
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    has_half_pair_ = true;
    half_pair_ = word_;
  } else {
    out += "\\u" + word_;
  }
  return Step::kMore;
}

bool LenientJson::write_word(std::string& out) {
  std::string_view word = word_;
  if (word == "True") word = "true";
  if (word == "False") word = "false";
  if (word == "None") word = "null";
  if (word != "true" && word != "false" && word != "null" && !is_json_number(word)) return false;
  write_comma(out);
  out += word;
  return true;
}

LenientJson::Step LenientJson::feed_word(char c, std::string& out) {
  if (is_json_word_char(c)) {
    word_ += c;
    return word_.size() > kLongestJsonWord ? fail() : Step::kMore;
  }
  if (!write_word(out)) return fail();
  if (end_value() == Step::kDone) return Step::kDoneBefore;
  return feed(c, out);
}

bool LenientJson::finish(std::string& out) {
  if (state_ == State::kWord && open_.empty() && write_word(out)) state_ = State::kDone;
  return state_ == State::kDone;
}

bool LenientJson::close(std::string& out) {
  if (state_ == State::kWord) {
    if (!write_word(out)) return false;
    end_value();
  }
  const bool is_between =
      state_ == State::kAfterValue || state_ == State::kKeyOrEnd || state_ == State::kValueOrEnd;
  if (is_between) {
    for (; !open_.empty(); open_.pop_back()) out += open_.back() == '{' ? '}' : ']';
    state_ = State::kDone;
  }
  return state_ == State::kDone;
}

JsonPrefix scan_json(std::string_view text) {
  JsonPrefix prefix;
  LenientJson json;
  for (; prefix.size < text.size(); ++prefix.size) {
    prefix.step = json.feed(text[prefix.size], prefix.json);
    if (prefix.step == LenientJson::Step::kMore) continue;
    if (prefix.step == LenientJson::Step::kDone) ++prefix.size;
    return prefix;
  }
  return prefix;
}

std::optional<std::string> compact_json(std::string_view text) {
  std::string out;
  LenientJson json;
  for (const char c : text) {
    const LenientJson::Step step = json.feed(c, out);
    if (step == LenientJson::Step::kBad) return std::nullopt;
    if (step == LenientJson::Step::kDoneBefore && !is_json_space(c)) return std::nullopt;
  }
  if (!json.finish(out)) return std::nullopt;
  return out;
}

std::optional<std::string> json_string_text(std::string_view json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

void append_json_escaped(std::string_view text, std::string& out) {
  for (const char c : text) append_json_char(c, out);
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(text, out);
  return out += '"';
}

}  // namespace moepack
