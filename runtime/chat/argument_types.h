// What a tool's schema says of the types of its arguments, for families that write values as text.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/chat/conversation.h"

namespace moepack {

// The types a value may have. Values without any are strings.
struct ArgumentType {
  bool is_string = true;
  bool is_nullable = false;
  bool is_boolean = false;
  bool is_number = false;     // integers too
  bool is_structure = false;  // objects and arrays

  // Whether a text can go on before its end is known.
  bool is_only_string() const { return is_string && !is_boolean && !is_number && !is_structure; }
};

// The arguments of one tool, by the view of its schema that the grammar of its calls has too
// (runtime/schema/tool_parameters.h).
class ArgumentTypes {
 public:
  ArgumentTypes() = default;  // of a tool that is not known: any arguments, all strings
  // A schema that cannot be resolved counts as it stands, without references and combinations.
  explicit ArgumentTypes(const OrderedJson& parameters);

  ArgumentType of(std::string_view argument) const;
  // Whether the schema admits an argument of this name: it is a property, or the schema has none
  // and is silent, or allows others in so many words.
  bool admits(std::string_view argument) const;
  // Whether a call may give it more than once: it is not named, and the schema allows others in so
  // many words. The grammar of calls cannot count those, and readers of JSON take the last.
  bool may_repeat(std::string_view argument) const;

 private:
  std::map<std::string, ArgumentType, std::less<>> named_;
  std::optional<ArgumentType> others_;  // of arguments that are not named, where a type is known
  bool admits_others_ = true;
  bool allows_others_ = false;  // in so many words
};

// A value as text made JSON: the type decides, never the look. What does not fit its type stays a
// string.
std::string argument_json(const ArgumentType& type, std::string_view text);
// JSON where the text is JSON or a Python literal, else a string.
std::string any_value_json(std::string_view text);

bool is_null_word(std::string_view text);  // "null", "None" or nothing

}  // namespace moepack
