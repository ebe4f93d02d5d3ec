// Operators and access to parts of values, as Python and jinja2's sandbox do them.
#pragma once

#include <string_view>

#include "runtime/jinja/ast.h"
#include "runtime/jinja/value.h"

namespace moepack::jinja {

Value binary(Run& run, Operation operation, const Value& a, const Value& b);
Value unary(Run& run, Operation operation, const Value& value);
bool compare(Run& run, Operation operation, const Value& a, const Value& b);
// -1, 0 or 1; an error for values without an order.
bool less(Run& run, const Value& a, const Value& b);
bool contains(Run& run, const Value& container, const Value& item);

// value.name: an attribute or method first, then an item. Undefined where neither is.
Value get_attribute(Run& run, const Value& value, std::string_view name);
// value[key]: an item first, then an attribute.
Value get_item(Run& run, const Value& value, const Value& key);
// value[start:stop:step]; null: not written.
Value get_slice(Run& run, const Value& value, const Value* start, const Value* stop,
                const Value* step);

// What slice.indices(size) gives, and how many steps that is.
struct SliceRange {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};
SliceRange slice_range(std::int64_t size, const Value* start, const Value* stop, const Value* step);

[[noreturn]] void fail_undefined(const Value& value);
// Refuses undefined values.
inline void need_defined(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
}

Value call(Run& run, const Value& callee, Arguments& arguments);

}  // namespace moepack::jinja
