// Values as text.
#pragma once

#include "runtime/jinja/value.h"

namespace moepack::jinja {

// Python's str(value): what {{ value }} prints.
TextPtr to_text(Run& run, const Value& value);
// Python's repr(value).
TextPtr repr(Run& run, const Value& value);
// &, <, >, " and ' as entities; the result is safe.
TextPtr escape_html(Run& run, const Text& text);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // what one level is indented by; absent: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// As json.dumps.
TextPtr to_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace moepack::jinja
