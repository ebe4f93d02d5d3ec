// The JSON text of an object as it comes, in pieces: what of it clients may see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moepack {

// Clients of Anthropic's protocol parse a call's arguments while they come and end the whole stream
// at the first byte that cannot belong to a JSON object. This lets through what can: at any time
// the joined output is a prefix of an object's text, and it is complete when is_complete() says so.
// Two things that models get wrong are put right, because their meaning is plain: control
// characters within strings are escaped, and halves of surrogate pairs become U+FFFD. Space around
// the object is left out. Nesting is limited to kMostObjectDepth. Not thread-safe.
constexpr std::size_t kMostObjectDepth = 48;

class ObjectText {
 public:
  // False: this is no JSON object, and nothing will make it one.
  bool push(std::string_view fragment, std::string& output);
  bool is_complete() const { return state_ == State::kDone; }
  bool is_empty() const { return state_ == State::kBegin; }  // nothing but space so far

 private:
  enum class State : std::uint8_t {
    kBegin,
    kValue,
    kFirstElement,  // or the end of an array
    kFirstKey,      // or the end of an object
    kKey,
    kColon,
    kNext,  // a comma, or the end of what is open
    kString,
    kEscape,
    kHexDigits,
    kLiteral,
    kNumber,
    kDone,
    kBroken,
  };
  enum class NumberPart : std::uint8_t {
    kSign,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits,
  };
  bool step(char byte, std::string& output);
  bool step_value(char byte, std::string& output);
  bool step_key(char byte, std::string& output);
  bool step_next(char byte, std::string& output);
  bool step_string(char byte, std::string& output);
  bool step_escape(char byte, std::string& output);
  bool step_hex(char byte, std::string& output);
  bool step_number(char byte, std::string& output);
  void end_escape(std::string& output);
  bool open(char bracket, std::string& output);
  bool close(char bracket, std::string& output);
  void drop_half(std::string& output);

  State state_ = State::kBegin;
  std::vector<char> open_;  // brackets
  bool is_key_ = false;     // of a string
  std::string_view literal_;
  NumberPart number_ = NumberPart::kSign;
  std::string hex_;
  std::string half_;  // the first half of a surrogate pair, "d83d", not sent yet
};

}  // namespace moepack
