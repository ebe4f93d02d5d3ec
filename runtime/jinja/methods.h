// Methods of strings, lists, tuples and dictionaries.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

using Method = Value (*)(Run&, const Value& self, Arguments&);

// `self.name`, bound to `self`, if a value of its type has such a method.
std::optional<Value> find_method(const Value& self, std::string_view name);

Method find_text_method(std::string_view name);
Method find_list_method(std::string_view name);
Method find_tuple_method(std::string_view name);
Method find_dict_method(std::string_view name);

// What methods and filters share.
TextPtr strip_text(Run& run, const TextPtr& text, const Text* characters, bool left, bool right);
std::vector<Value> split_lines(Run& run, const TextPtr& text, bool keep_ends);
// Up to `most` replacements; negative: all.
TextPtr replace_text(Run& run, const TextPtr& text, const Text& old, const Text& by,
                     std::int64_t most);

enum class ViewKind { kKeys, kValues, kItems };
Value make_view(const DictPtr& dict, ViewKind kind);

}  // namespace moepack::jinja
