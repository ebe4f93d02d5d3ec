// The filters of jinja2, and tojson as transformers defines it for chat templates.
#pragma once

#include <string_view>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

using Filter = Value (*)(Run&, const Value& operand, Arguments&);

// Null for a name that jinja2 does not know.
Filter find_filter(std::string_view name);

// By kind; each null for names of the others.
Filter find_text_filter(std::string_view name);
Filter find_number_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
Filter find_selecting_filter(std::string_view name);

// What of an item a filter with `attribute` looks at: "a.b.0" names parts of parts.
class ItemPath {
 public:
  explicit ItemPath(const Value* attribute);  // null or none: the item itself
  Value of(Run& run, const Value& item, const Value* absent = nullptr) const;

 private:
  std::vector<Value> parts_;
};

// Text in lower case, other values as they are: how sorting filters compare.
Value without_case(Run& run, const Value& value);

}  // namespace moepack::jinja
