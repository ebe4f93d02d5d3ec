// JSON as models write it, made strict and compact as it comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moepack {

// Takes one value, byte after byte. It accepts beside JSON what models mix in: line ends in
// strings, Python's literals (True, None, 'text', tuples), a comma before a closing bracket. What
// it writes is always a beginning of valid JSON (RFC 8259) without white space, keys in the order
// they came. Numbers must be JSON numbers of finite size, and 60 levels the deepest nesting. One
// thread at a time.
class LenientJson {
 public:
  enum class Step : std::uint8_t {
    kMore,
    kDone,        // this byte ends the value
    kDoneBefore,  // the value ended before this byte, which is not part of it
    kBad,         // no value; nothing may be fed afterwards
  };
  // Appends to `out` what is certain.
  Step feed(char c, std::string& out);
  // The text ends here. True if the value is complete.
  bool finish(std::string& out);
  // The same, but closes objects and arrays that are open after a complete member.
  bool close(std::string& out);
  bool is_in_string() const {
    return state_ == State::kString || state_ == State::kEscape || state_ == State::kHex;
  }

 private:
  enum class State : std::uint8_t {
    kValue,
    kValueOrEnd,
    kKeyOrEnd,
    kColon,
    kAfterValue,
    kString,
    kEscape,
    kHex,
    kWord,
    kDone,
    kBad
  };
  Step feed_value(char c, std::string& out);
  Step feed_key(char c, std::string& out);
  Step feed_after_value(char c, std::string& out);
  Step feed_string(char c, std::string& out);
  Step feed_escape(char c, std::string& out);
  Step feed_hex(char c, std::string& out);
  Step feed_word(char c, std::string& out);
  Step open_string(char c, bool is_key, std::string& out);
  Step close_container(char c, std::string& out);
  Step end_value();
  Step fail();
  bool write_word(std::string& out);
  void write_comma(std::string& out);
  void write_half_pair(std::string& out);

  State state_ = State::kValue;
  std::string open_;  // brackets, '(' too
  std::string word_;  // a number or a literal; digits of an escape
  char quote_ = '"';
  bool is_key_ = false;
  bool owes_comma_ = false;
  bool has_half_pair_ = false;  // the first half of a surrogate pair waits for the second
  std::string half_pair_;       // its digits
};

// The whole text as one value, white space around it left out; nullopt if it is none.
std::optional<std::string> compact_json(std::string_view text);

// One value at the beginning of `text`, white space before it left out.
struct JsonPrefix {
  LenientJson::Step step = LenientJson::Step::kMore;  // kMore: the text ends within it
  std::size_t size = 0;                               // bytes up to the value's end
  std::string json;                                   // the value, compact
};
JsonPrefix scan_json(std::string_view text);

// A JSON string's text; nullopt if `json` is none.
std::optional<std::string> json_string_text(std::string_view json);
// `text` (UTF-8) as it stands between the quotes of a JSON string.
void append_json_escaped(std::string_view text, std::string& out);
std::string json_quoted(std::string_view text);

bool is_json_number(std::string_view text);  // of finite size

}  // namespace moepack
