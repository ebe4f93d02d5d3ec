// Values of JSON as schemas compare them.
#pragma once

#include <string>

#include "runtime/schema/ordered_json.h"

namespace moepack {

// The same text for values that JSON Schema calls equal: the order of keys does not count, nor
// whether a number is written 1 or 1.0.
std::string canonical_text(const OrderedJson& value);

// Whether the value is of a type that "type" names; false for what is no type.
bool is_of_type(const OrderedJson& value, const std::string& type);

// Exact: 64 bits of mantissa hold every number that a parsed text has.
long double number_of(const OrderedJson& value);

}  // namespace moepack
