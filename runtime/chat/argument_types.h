// What a tool's schema says of the type of an argument, for families that write values as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/conversation.h"

namespace moepack {

// The types a value may have. Values without any are strings.
struct ArgumentType {
  bool is_known = false;  // the schema names the argument
  bool is_string = true;
  bool is_nullable = false;
  bool is_boolean = false;
  bool is_number = false;     // integers too
  bool is_structure = false;  // objects and arrays

  // Whether a text can go on before its end is known.
  bool is_only_string() const { return is_string && !is_boolean && !is_number && !is_structure; }
};

// Reads `type` (one or a list), `anyOf`, `oneOf`, `allOf`, `enum`, `const` and `$ref` within the
// tool's parameters.
ArgumentType argument_type(const ToolSpec* tool, std::string_view argument);
// Whether the schema admits an argument of this name: it is a property, or the schema has none, or
// allows others in so many words.
bool admits_argument(const ToolSpec* tool, std::string_view argument);

// A value as text made JSON: the type decides, never the look. What does not fit its type stays a
// string.
std::string argument_json(const ArgumentType& type, std::string_view text);
// JSON where the text is JSON or a Python literal, else a string.
std::string any_value_json(std::string_view text);

bool is_null_word(std::string_view text);  // "null", "None" or nothing

}  // namespace moepack
