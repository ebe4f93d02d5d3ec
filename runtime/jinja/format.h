// Python's two languages of formats: "%s" % x and "{}".format(x).
#pragma once

#include "runtime/jinja/value.h"

namespace moepack::jinja {

// text % value; a tuple holds several values, a dictionary named ones.
Value percent_format(Run& run, const TextPtr& text, const Value& value);
// text.format(…)
Value brace_format(Run& run, const TextPtr& text, const Arguments& arguments);

}  // namespace moepack::jinja
