#include "runtime/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/format.h"
#include "runtime/jinja/numbers.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/text_parts.h"

namespace moepack::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view symbol, const Value& a, const Value& b) {
  fail("unsupported operand types for " + std::string(symbol) + ": '" + type_name(a) + "' and '" +
       type_name(b) + "'");
}

std::string_view symbol_of(Operation operation) {
  switch (operation) {
    case Operation::kAdd:
      return "+";
    case Operation::kSubtract:
      return "-";
    case Operation::kMultiply:
      return "*";
    case Operation::kDivide:
      return "/";
    case Operation::kFloorDivide:
      return "//";
    case Operation::kModulo:
      return "%";
    case Operation::kPower:
      return "**";
    case Operation::kLess:
      return "<";
    case Operation::kLessEqual:
      return "<=";
    case Operation::kGreater:
      return ">";
    default:
      return ">=";
  }
}

std::optional<double> real_of(const Value& value) {
  if (const double* real = value.as<double>()) return *real;
  const auto integer = value.index();
  return integer ? std::optional(static_cast<double>(*integer)) : std::nullopt;
}

double float_power(double a, double b) {
  if (a == 0.0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a < 0 && b != std::floor(b)) {
    fail("a power that is a complex number", ErrorKind::kUnsupported);
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && !std::isinf(a) && !std::isinf(b)) fail("the power is too large");
  return result;
}

Value integer_power(Integer a, Integer b) {
  if (b < 0) return Value(float_power(static_cast<double>(a), static_cast<double>(b)));
  Integer result = 1;
  while (b > 0) {
    if ((b & 1) != 0) result = multiply_integers(result, a);
    b >>= 1;
    if (b > 0) a = a == 1 || a == 0 ? a : multiply_integers(a, a);
  }
  return Value(result);
}

Value integer_operation(Operation operation, Integer a, Integer b) {
  switch (operation) {
    case Operation::kAdd:
      return Value(add_integers(a, b));
    case Operation::kSubtract:
      return Value(subtract_integers(a, b));
    case Operation::kMultiply:
      return Value(multiply_integers(a, b));
    case Operation::kFloorDivide:
      return Value(floor_divide(a, b));
    case Operation::kModulo:
      return Value(floor_modulo(a, b));
    case Operation::kPower:
      return integer_power(a, b);
    default:
      if (b == 0) fail("division by zero");
      return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
}

Value float_operation(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::kAdd:
      return Value(a + b);
    case Operation::kSubtract:
      return Value(a - b);
    case Operation::kMultiply:
      return Value(a * b);
    case Operation::kFloorDivide:
      return Value(float_floor_divide(a, b));
    case Operation::kModulo:
      return Value(float_modulo(a, b));
    case Operation::kPower:
      return Value(float_power(a, b));
    default:
      if (b == 0.0) fail("float division by zero");
      return Value(a / b);
  }
}

// Text added to safe text is escaped; safe text comes out.
Value add_texts(Run& run, const TextPtr& a, const TextPtr& b) {
  TextBuilder sum(run);
  const bool safe = a->safe || b->safe;
  sum.add(safe && !a->safe ? *escape_html(run, *a) : *a);
  sum.add(safe && !b->safe ? *escape_html(run, *b) : *b);
  sum.set_safe(safe);
  return sum.finish();
}

std::vector<Value> joined(Run& run, const std::vector<Value>& a, const std::vector<Value>& b) {
  run.charge_items(a.size() + b.size());
  std::vector<Value> items = a;
  items.insert(items.end(), b.begin(), b.end());
  return items;
}

Value add(Run& run, const Value& a, const Value& b) {
  if (a.text_or_null() != nullptr && b.text_or_null() != nullptr) {
    return add_texts(run, *a.as<TextPtr>(), *b.as<TextPtr>());
  }
  if (a.list_or_null() != nullptr && b.list_or_null() != nullptr) {
    return Value::list(joined(run, *a.items(), *b.items()));
  }
  if (a.tuple_or_null() != nullptr && b.tuple_or_null() != nullptr) {
    return Value::tuple(joined(run, *a.items(), *b.items()));
  }
  fail_operands("+", a, b);
}

Value repeat(Run& run, const Value& value, const Value& times) {
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(need_index(times), 0));
  if (const Text* text = value.text_or_null()) {
    TextBuilder repeated(run);
    repeated.set_safe(text->safe);
    if (text->bytes.empty()) return repeated.finish();
    for (std::uint64_t i = 0; i < count; ++i) {
      run.charge(1);
      repeated.add(*text);
    }
    return repeated.finish();
  }
  const std::vector<Value>& items = *value.items();
  std::vector<Value> repeated;
  if (!items.empty()) {
    const std::uint64_t most = run.limits().list_items;
    run.charge_items(count > most ? count : count * items.size());
    for (std::uint64_t i = 0; i < count; ++i) {
      repeated.insert(repeated.end(), items.begin(), items.end());
    }
  }
  return value.list_or_null() != nullptr ? Value::list(std::move(repeated))
                                         : Value::tuple(std::move(repeated));
}

bool is_sequence(const Value& value) {
  return value.text_or_null() != nullptr || value.items() != nullptr;
}

bool less_items(Run& run, const std::vector<Value>& a, const std::vector<Value>& b) {
  const Run::Depth depth(run);
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!equal(run, a[i], b[i])) return less(run, a[i], b[i]);
  }
  return a.size() < b.size();
}

// Whether a < b, or a <= b for `or_equal`.
bool ordered(Run& run, const Value& a, const Value& b, bool or_equal, Operation shown) {
  run.charge(1);
  const auto x = real_of(a);
  const auto y = real_of(b);
  if (x && y) {
    if (a.index() && b.index())
      return or_equal ? *a.index() <= *b.index() : *a.index() < *b.index();
    return or_equal ? *x <= *y : *x < *y;
  }
  const bool texts = a.text_or_null() != nullptr && b.text_or_null() != nullptr;
  const bool lists = a.list_or_null() != nullptr && b.list_or_null() != nullptr;
  const bool tuples = a.tuple_or_null() != nullptr && b.tuple_or_null() != nullptr;
  if (texts) {
    run.charge(std::min(a.text_or_null()->bytes.size(), b.text_or_null()->bytes.size()) / 64);
    const int order = a.text_or_null()->bytes.compare(b.text_or_null()->bytes);
    return or_equal ? order <= 0 : order < 0;
  }
  if (!lists && !tuples) {
    need_defined(a);
    need_defined(b);
    fail("'" + std::string(symbol_of(shown)) + "' not supported between '" + type_name(a) +
         "' and '" + type_name(b) + "'");
  }
  if (or_equal && equal(run, a, b)) return true;
  return less_items(run, *a.items(), *b.items());
}

}  // namespace

void fail_undefined(const Value& value) {
  const auto& hint = value.as<Undefined>()->hint;
  fail(hint == nullptr ? "an undefined value is used" : *hint, ErrorKind::kUndefined);
}

Value binary(Run& run, Operation operation, const Value& a, const Value& b) {
  if (operation == Operation::kModulo && a.text_or_null() != nullptr) {
    return percent_format(run, *a.as<TextPtr>(), b);
  }
  need_defined(a);
  need_defined(b);
  if (a.index() && b.index()) return integer_operation(operation, *a.index(), *b.index());
  const auto x = real_of(a);
  const auto y = real_of(b);
  if (x && y) return float_operation(operation, *x, *y);
  if (operation == Operation::kAdd) return add(run, a, b);
  if (operation == Operation::kMultiply) {
    if (is_sequence(a) && b.index()) return repeat(run, a, b);
    if (is_sequence(b) && a.index()) return repeat(run, b, a);
  }
  fail_operands(symbol_of(operation), a, b);
}

Value unary(Run& run, Operation operation, const Value& value) {
  if (operation == Operation::kNot) return Value(!truth(run, value));
  need_defined(value);
  const bool negate = operation == Operation::kNegate;
  if (const double* real = value.as<double>()) return Value(negate ? -*real : *real);
  const auto integer = value.index();
  if (!integer) fail("bad operand type for a sign: '" + type_name(value) + "'");
  return Value(negate ? subtract_integers(0, *integer) : *integer);
}

bool less(Run& run, const Value& a, const Value& b) {
  return ordered(run, a, b, false, Operation::kLess);
}

bool compare(Run& run, Operation operation, const Value& a, const Value& b) {
  switch (operation) {
    case Operation::kEqual:
      return equal(run, a, b);
    case Operation::kNotEqual:
      return !equal(run, a, b);
    case Operation::kLess:
      return ordered(run, a, b, false, operation);
    case Operation::kLessEqual:
      return ordered(run, a, b, true, operation);
    case Operation::kGreater:
      return ordered(run, b, a, false, operation);
    case Operation::kGreaterEqual:
      return ordered(run, b, a, true, operation);
    case Operation::kNotIn:
      return !contains(run, b, a);
    default:
      return contains(run, b, a);
  }
}

bool contains(Run& run, const Value& container, const Value& item) {
  if (const Text* text = container.text_or_null()) {
    if (item.text_or_null() == nullptr) {
      fail("'in <string>' requires string as left operand, not " + type_name(item));
    }
    return find_part(run, text->bytes, item.text_or_null()->bytes, 0) != std::string::npos;
  }
  if (const Dict* dict = container.dict_or_null()) {
    check_hashable(run, item);
    return dict->find(item) != nullptr;
  }
  if (Object* object = container.object_or_null()) {
    if (const auto answer = object->contains(run, item)) return *answer;
  }
  const IteratorPtr iterator = try_iterate(run, container);
  if (iterator == nullptr) {
    fail("argument of type '" + type_name(container) + "' is not iterable");
  }
  Value value;
  while (iterator->next(run, value)) {
    if (equal(run, value, item)) return true;
  }
  return false;
}

Value call(Run& run, const Value& callee, Arguments& arguments) {
  need_defined(callee);
  Object* object = callee.object_or_null();
  if (object == nullptr || !object->callable()) {
    fail("'" + type_name(callee) + "' object is not callable");
  }
  const Run::Depth depth(run);
  return object->call(run, arguments);
}

}  // namespace moepack::jinja
