// Numbers as Python reads and writes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/jinja/value.h"

namespace moepack::jinja {

// Digits only, valid in `base`; a limit error beyond Integer.
Integer parse_integer(std::string_view digits, int base);
// As int(text, base) takes it: blanks around, sign, prefix, underscores. Nothing if it is none.
std::optional<Integer> read_integer(std::string_view text, int base);
// As float(text) takes it.
std::optional<double> read_float(std::string_view text);

std::string write_integer(Integer value, int base = 10);
// The shortest decimal that reads back the same, as repr(float).
std::string write_float(double value);

// An integer result, or a limit error where it does not fit.
Integer add_integers(Integer a, Integer b);
Integer subtract_integers(Integer a, Integer b);
Integer multiply_integers(Integer a, Integer b);
// Rounded towards minus infinity, as // and %.
Integer floor_divide(Integer a, Integer b);
Integer floor_modulo(Integer a, Integer b);
double float_floor_divide(double a, double b);
double float_modulo(double a, double b);
// The integer part, or an error for what is not finite or not an Integer.
Integer truncate_float(double value);

}  // namespace moepack::jinja
