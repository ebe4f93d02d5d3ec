// Constant expressions, computed when a template is compiled. jinja2 does so, and it shows: errors
// in what is computed beforehand vanish where the result is not needed, and there a value that
// cannot be sliced is undefined instead of an error.
#pragma once

#include "runtime/jinja/ast.h"

namespace moepack::jinja {

// Replaces the parts of `expression` that are constants of a plain type by their values.
void fold_constants(ExpressionPtr& expression);
// The same for an expression that is printed: a constant of any type becomes its text.
void fold_printed(ExpressionPtr& expression);

}  // namespace moepack::jinja
