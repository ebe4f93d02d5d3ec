#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/format_spec.h"
#include "runtime/jinja/numbers.h"
#include "runtime/jinja/operators.h"

namespace moepack::jinja {
namespace {

std::optional<double> to_float(Run& run, const Value& value) {
  need_defined(value);
  if (const double* real = value.as<double>()) return *real;
  if (value.index()) return static_cast<double>(*value.index());
  if (const Text* text = value.text_or_null()) {
    run.charge(text->bytes.size() / 8);
    return read_float(text->bytes);
  }
  return std::nullopt;
}

Value to_int(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  need_defined(value);
  const Value absent = bound[0] == nullptr ? Value::integer(0) : *bound[0];
  if (const Text* text = value.text_or_null()) {
    const Integer base = bound.integer(1, 10);
    run.charge(text->bytes.size() / 8);
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (const auto read = read_integer(text->bytes, static_cast<int>(base))) return Value(*read);
    }
  } else if (value.index()) {
    return Value(*value.index());
  }
  const auto real = to_float(run, value);
  if (!real) return absent;
  if (!std::isfinite(*real)) {
    // int(inf) raises an OverflowError, which jinja2 lets pass for numbers that are no text.
    if (std::isinf(*real) && value.text_or_null() == nullptr) {
      fail("cannot convert float infinity to integer");
    }
    return absent;
  }
  return Value(truncate_float(*real));
}

Value to_real(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  const auto real = to_float(run, value);
  if (real) return Value(*real);
  return bound[0] == nullptr ? Value(0.0) : *bound[0];
}

Value absolute(Run& run, const Value& value, Arguments& arguments) {
  expect_count("abs", arguments, 0, 0);
  need_defined(value);
  if (const double* real = value.as<double>()) return Value(std::fabs(*real));
  if (!value.index()) fail("bad operand type for abs(): '" + type_name(value) + "'");
  return *value.index() < 0 ? unary(run, Operation::kNegate, value) : Value(*value.index());
}

// Python's round(): correctly rounded from the exact decimal value, half to even.
double round_decimal(double value, std::int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits > 323) return value;
  if (digits >= 0)
    return std::strtod(
        ((std::signbit(value) ? "-" : "") + format_real(std::fabs(value), 'f', digits, false))
            .c_str(),
        nullptr);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::isinf(scale) ? std::copysign(0.0, value) : std::nearbyint(value / scale) * scale;
}

Value round_number(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const std::string method = bound.text(1, "common")->bytes;
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("method must be common, ceil or floor");
  }
  need_defined(value);
  const Integer precision = bound.integer(0, 0);
  const auto digits = static_cast<std::int64_t>(std::clamp<Integer>(precision, -1000, 1000));
  const bool whole = value.index().has_value();
  if (!whole && value.as<double>() == nullptr) {
    fail("type " + type_name(value) + " doesn't define __round__ method");
  }
  if (method == "common") {
    if (!whole) return Value(round_decimal(*value.as<double>(), digits));
    if (digits >= 0) return Value(*value.index());
    fail("round() of an integer to tens is not supported", ErrorKind::kUnsupported);
  }
  const Value scale = binary(run, Operation::kPower, Value::integer(10), Value(precision));
  const Value scaled = binary(run, Operation::kMultiply, value, scale);
  const double real = scaled.index() ? static_cast<double>(*scaled.index()) : *scaled.as<double>();
  if (!std::isfinite(real)) fail("cannot round what is not finite");
  const Value rounded =
      scaled.index() ? Value(*scaled.index())
                     : Value(truncate_float(method == "ceil" ? std::ceil(real) : std::floor(real)));
  return binary(run, Operation::kDivide, rounded, scale);
}

Value filesizeformat(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("filesizeformat", arguments, {"binary"});
  const auto bytes = to_float(run, value);
  if (!bytes) fail("filesizeformat wants a number");
  const bool binary_units =
      bound[0] != nullptr && bound[0]->as<bool>() != nullptr && *bound[0]->as<bool>();
  const double base = binary_units ? 1024 : 1000;
  if (*bytes == 1) return Value::text("1 Byte");
  if (*bytes < base) return Value::text(write_integer(truncate_float(*bytes)) + " Bytes");
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  for (unit *= base; *bytes >= unit && i + 1 < kPrefixes.size(); ++i) unit *= base;
  const std::string prefix = binary_units && i == 0 ? "K" : std::string(1, kPrefixes[i]);
  return Value::text(format_real(base * *bytes / unit, 'f', 1, false) + " " + prefix +
                     (binary_units ? "iB" : "B"));
}

using FilterEntry = std::pair<std::string_view, Filter>;
constexpr std::array kNumberFilters = {
    FilterEntry{"abs", absolute},       FilterEntry{"filesizeformat", filesizeformat},
    FilterEntry{"float", to_real},      FilterEntry{"int", to_int},
    FilterEntry{"round", round_number},
};

}  // namespace

Filter find_number_filter(std::string_view name) {
  const auto* const found =
      std::find_if(kNumberFilters.begin(), kNumberFilters.end(),
                   [&](const FilterEntry& entry) { return entry.first == name; });
  return found == kNumberFilters.end() ? nullptr : found->second;
}

}  // namespace moepack::jinja
