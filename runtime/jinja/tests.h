// What stands behind `is`.
#pragma once

#include <string_view>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

using Test = bool (*)(Run&, const Value& operand, Arguments&);

// Null for a name that jinja2 does not know.
Test find_test(std::string_view name);

}  // namespace moepack::jinja
