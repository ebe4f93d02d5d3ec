// Functions that templates can call.
#pragma once

#include <functional>
#include <string>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

using Builtin = std::function<Value(Run&, Arguments&)>;
Value make_function(std::string name, Builtin function);

}  // namespace moepack::jinja
