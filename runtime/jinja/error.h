// What stops the compilation or the rendering of a template.
#pragma once

#include <cstdint>
#include <string>

namespace moepack::jinja {

// Counted from 1; the column in characters.
struct Position {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

enum class ErrorKind : std::uint8_t {
  kSyntax,       // the template is not a template
  kValue,        // an operation on values that do not support it, as Python's TypeError
  kUndefined,    // use of an undefined value
  kRaised,       // the template called raise_exception
  kLimit,        // a limit of Limits
  kUnsupported,  // Jinja has it, this interpreter has not
};

// Thrown and caught inside this room only: Template::compile and Template::render return Status.
// An interpreter's operations fail at any depth of recursion, as Python's do.
struct Error {
  ErrorKind kind = ErrorKind::kValue;
  std::string message;
};

[[noreturn]] inline void fail(std::string message, ErrorKind kind = ErrorKind::kValue) {
  throw Error{kind, std::move(message)};
}

}  // namespace moepack::jinja
