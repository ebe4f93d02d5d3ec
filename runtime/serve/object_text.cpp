#include "runtime/serve/object_text.h"

#include <cctype>
#include <cstdlib>

namespace moepack {
namespace {

bool is_object_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}
bool is_decimal(char byte) { return byte >= '0' && byte <= '9'; }
bool is_half(const std::string& hex, char low, char high) {
  const char second = static_cast<char>(std::tolower(static_cast<unsigned char>(hex[1])));
  return (hex[0] == 'd' || hex[0] == 'D') && second >= low && second <= high;
}
void append_control(char byte, std::string& output) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto value = static_cast<unsigned char>(byte);
  if (byte == '\n') {
    output += "\\n";
  } else if (byte == '\t') {
    output += "\\t";
  } else if (byte == '\r') {
    output += "\\r";
  } else {
    output.append("\\u00");
    output += kHex[value >> 4U];
    output += kHex[value & 15U];
  }
}

}  // namespace

bool ObjectText::push(std::string_view fragment, std::string& output) {
  for (const char byte : fragment) {
    if (!step(byte, output)) {
      state_ = State::kBroken;
      return false;
    }
  }
  return true;
}

bool ObjectText::step(char byte, std::string& output) {
  switch (state_) {
    case State::kString:
      return step_string(byte, output);
    case State::kEscape:
      return step_escape(byte, output);
    case State::kHexDigits:
      return step_hex(byte, output);
    case State::kNumber:
      return step_number(byte, output);
    case State::kLiteral:
      if (byte != literal_.front()) return false;
      output += byte;
      literal_.remove_prefix(1);
      if (literal_.empty()) state_ = State::kNext;
      return true;
    case State::kBroken:
      return false;
    default:
      break;
  }
  if (is_object_space(byte)) {
    if (state_ != State::kBegin && state_ != State::kDone) output += byte;
    return true;
  }
  switch (state_) {
    case State::kBegin:
      return byte == '{' && open(byte, output);
    case State::kFirstElement:
      if (byte == ']') return close(byte, output);
      return step_value(byte, output);
    case State::kValue:
      return step_value(byte, output);
    case State::kFirstKey:
      if (byte == '}') return close(byte, output);
      return step_key(byte, output);
    case State::kKey:
      return step_key(byte, output);
    case State::kColon:
      output += byte;
      state_ = State::kValue;
      return byte == ':';
    case State::kNext:
      return step_next(byte, output);
    default:
      return false;  // behind the end
  }
}

bool ObjectText::step_value(char byte, std::string& output) {
  if (byte == '{' || byte == '[') return open(byte, output);
  if (byte == '"') {
    is_key_ = false;
    state_ = State::kString;
  } else if (byte == '-' || is_decimal(byte)) {
    number_ = byte == '-'   ? NumberPart::kSign
              : byte == '0' ? NumberPart::kZero
                            : NumberPart::kInteger;
    state_ = State::kNumber;
  } else if (byte == 't' || byte == 'f' || byte == 'n') {
    literal_ = byte == 't' ? "rue" : byte == 'f' ? "alse" : "ull";
    state_ = State::kLiteral;
  } else {
    return false;
  }
  output += byte;
  return true;
}

bool ObjectText::step_key(char byte, std::string& output) {
  if (byte != '"') return false;
  is_key_ = true;
  state_ = State::kString;
  output += byte;
  return true;
}

bool ObjectText::step_next(char byte, std::string& output) {
  if (byte == '}' || byte == ']') return close(byte, output);
  if (byte != ',') return false;
  state_ = open_.back() == '{' ? State::kKey : State::kValue;
  output += byte;
  return true;
}

bool ObjectText::open(char bracket, std::string& output) {
  if (open_.size() == kMostObjectDepth) return false;
  open_.push_back(bracket);
  state_ = bracket == '{' ? State::kFirstKey : State::kFirstElement;
  output += bracket;
  return true;
}

bool ObjectText::close(char bracket, std::string& output) {
  if (open_.empty() || open_.back() != (bracket == '}' ? '{' : '[')) return false;
  open_.pop_back();
  state_ = open_.empty() ? State::kDone : State::kNext;
  output += bracket;
  return true;
}

bool ObjectText::step_string(char byte, std::string& output) {
  if (byte == '\\') {
    state_ = State::kEscape;  // sent with what follows it
    return true;
  }
  drop_half(output);
  if (static_cast<unsigned char>(byte) < 0x20) {
    append_control(byte, output);
    return true;
  }
  if (byte == '"') state_ = is_key_ ? State::kColon : State::kNext;
  output += byte;
  return true;
}

bool ObjectText::step_escape(char byte, std::string& output) {
  if (byte == 'u') {
    hex_.clear();
    state_ = State::kHexDigits;
    return true;
  }
  drop_half(output);
  if (std::string_view("\"\\/bfnrt").find(byte) == std::string_view::npos) return false;
  output += '\\';
  output += byte;
  state_ = State::kString;
  return true;
}

bool ObjectText::step_hex(char byte, std::string& output) {
  if (std::isxdigit(static_cast<unsigned char>(byte)) == 0) return false;
  hex_ += byte;
  if (hex_.size() == 4) end_escape(output);
  return true;
}

void ObjectText::end_escape(std::string& output) {
  state_ = State::kString;
  if (is_half(hex_, 'c', 'f')) {  // a second half
    if (half_.empty()) {
      output += "\\ufffd";
    } else {
      output.append("\\u").append(half_).append("\\u").append(hex_);
      half_.clear();
    }
    return;
  }
  drop_half(output);
  if (is_half(hex_, '8', 'b')) {
    half_ = hex_;
  } else {
    output.append("\\u").append(hex_);
  }
}

void ObjectText::drop_half(std::string& output) {
  if (half_.empty()) return;
  half_.clear();
  output += "\\ufffd";
}

bool ObjectText::step_number(char byte, std::string& output) {
  using Part = NumberPart;
  const bool may_end = number_ == Part::kZero || number_ == Part::kInteger ||
                       number_ == Part::kFraction || number_ == Part::kExponentDigits;
  if (is_decimal(byte)) {
    if (number_ == Part::kZero) return false;
    if (number_ == Part::kSign) number_ = byte == '0' ? Part::kZero : Part::kInteger;
    if (number_ == Part::kPoint) number_ = Part::kFraction;
    if (number_ == Part::kExponent || number_ == Part::kExponentSign) {
      number_ = Part::kExponentDigits;
    }
  } else if (byte == '.' && (number_ == Part::kZero || number_ == Part::kInteger)) {
    number_ = Part::kPoint;
  } else if ((byte == 'e' || byte == 'E') && may_end && number_ != Part::kExponentDigits) {
    number_ = Part::kExponent;
  } else if ((byte == '+' || byte == '-') && number_ == Part::kExponent) {
    number_ = Part::kExponentSign;
  } else {
    if (!may_end) return false;
    state_ = State::kNext;
    return step(byte, output);
  }
  output += byte;
  return true;
}

}  // namespace moepack
