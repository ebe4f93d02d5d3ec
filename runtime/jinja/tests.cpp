#include "runtime/jinja/tests.h"

#include <algorithm>
#include <array>

#include "runtime/jinja/arguments.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/text_parts.h"

namespace moepack::jinja {
namespace {

template <bool (*kIs)(Run&, const Value&)>
bool plain(Run& run, const Value& value, Arguments& arguments) {
  expect_count("the test", arguments, 0, 0);
  return kIs(run, value);
}

bool is_none(Run&, const Value& value) { return value.is_none(); }
bool is_defined(Run&, const Value& value) { return !value.is_undefined(); }
bool is_undefined(Run&, const Value& value) { return value.is_undefined(); }
bool is_boolean(Run&, const Value& value) { return value.as<bool>() != nullptr; }
bool is_true(Run&, const Value& value) { return value.as<bool>() != nullptr && *value.as<bool>(); }
bool is_false(Run&, const Value& value) {
  return value.as<bool>() != nullptr && !*value.as<bool>();
}
bool is_integer(Run&, const Value& value) { return value.as<Integer>() != nullptr; }
bool is_float(Run&, const Value& value) { return value.as<double>() != nullptr; }
bool is_number(Run&, const Value& value) { return value.index() || value.as<double>() != nullptr; }
bool is_string(Run&, const Value& value) { return value.text_or_null() != nullptr; }
bool is_mapping(Run&, const Value& value) { return value.dict_or_null() != nullptr; }
bool is_called(Run&, const Value& value) { return is_callable(value); }
bool is_escaped(Run&, const Value& value) {
  return value.text_or_null() != nullptr && value.text_or_null()->safe;
}
bool is_iterable(Run& run, const Value& value) { return try_iterate(run, value) != nullptr; }

bool is_sequence(Run& run, const Value& value) {
  if (value.is_undefined()) return true;
  if (Object* object = value.object_or_null()) {
    return object->has_items() && object->length(run).has_value();
  }
  return length(run, value).has_value();
}

template <bool kUpper>
bool is_cased(Run& run, const Value& value) {
  return has_case(*to_text(run, value), kUpper);
}

Integer modulo(Run& run, const Value& value, const Value& by) {
  const Value rest = binary(run, Operation::kModulo, value, by);
  if (rest.text_or_null() != nullptr) return 2;  // "%s" % 2 is text, and no number
  if (const double* real = rest.as<double>()) return *real == 0 ? 0 : *real == 1 ? 1 : 2;
  return *rest.index();
}

bool is_odd(Run& run, const Value& value) { return modulo(run, value, Value::integer(2)) == 1; }
bool is_even(Run& run, const Value& value) { return modulo(run, value, Value::integer(2)) == 0; }

bool divisible(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  return modulo(run, value, *bound[0]) == 0;
}

bool same(Run&, const Value& value, Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  const Value& other = *bound[0];
  if (value.is_none() || other.is_none()) return value.is_none() && other.is_none();
  if (value.as<bool>() != nullptr || other.as<bool>() != nullptr) {
    return value.as<bool>() != nullptr && other.as<bool>() != nullptr &&
           *value.as<bool>() == *other.as<bool>();
  }
  if (value.as<Integer>() != nullptr && other.as<Integer>() != nullptr) {
    return *value.index() == *other.index();
  }
  if (value.list_or_null() != nullptr) return value.list_or_null() == other.list_or_null();
  if (value.dict_or_null() != nullptr) return value.dict_or_null() == other.dict_or_null();
  if (value.object_or_null() != nullptr) return value.object_or_null() == other.object_or_null();
  return value.text_or_null() != nullptr && value.text_or_null() == other.text_or_null();
}

bool is_in(Run& run, const Value& value, Arguments& arguments) {
  const Bound bound("in", arguments, {"seq"}, 1);
  return contains(run, *bound[0], value);
}

template <Operation kOperation>
bool compared(Run& run, const Value& value, Arguments& arguments) {
  expect_count("a comparison", arguments, 1, 1);
  return compare(run, kOperation, value, arguments.positional[0]);
}

bool is_filter(Run&, const Value& value) {
  check_hashable(value);
  return value.text_or_null() != nullptr && find_filter(value.text_or_null()->bytes) != nullptr;
}

bool is_test(Run&, const Value& value) {
  check_hashable(value);
  return value.text_or_null() != nullptr && find_test(value.text_or_null()->bytes) != nullptr;
}

using Entry = std::pair<std::string_view, Test>;
constexpr std::array kTests = {
    Entry{"!=", compared<Operation::kNotEqual>},
    Entry{"<", compared<Operation::kLess>},
    Entry{"<=", compared<Operation::kLessEqual>},
    Entry{"==", compared<Operation::kEqual>},
    Entry{">", compared<Operation::kGreater>},
    Entry{">=", compared<Operation::kGreaterEqual>},
    Entry{"boolean", plain<is_boolean>},
    Entry{"callable", plain<is_called>},
    Entry{"defined", plain<is_defined>},
    Entry{"divisibleby", divisible},
    Entry{"eq", compared<Operation::kEqual>},
    Entry{"equalto", compared<Operation::kEqual>},
    Entry{"escaped", plain<is_escaped>},
    Entry{"even", plain<is_even>},
    Entry{"false", plain<is_false>},
    Entry{"filter", plain<is_filter>},
    Entry{"float", plain<is_float>},
    Entry{"ge", compared<Operation::kGreaterEqual>},
    Entry{"greaterthan", compared<Operation::kGreater>},
    Entry{"gt", compared<Operation::kGreater>},
    Entry{"in", is_in},
    Entry{"integer", plain<is_integer>},
    Entry{"iterable", plain<is_iterable>},
    Entry{"le", compared<Operation::kLessEqual>},
    Entry{"lessthan", compared<Operation::kLess>},
    Entry{"lower", plain<is_cased<false>>},
    Entry{"lt", compared<Operation::kLess>},
    Entry{"mapping", plain<is_mapping>},
    Entry{"ne", compared<Operation::kNotEqual>},
    Entry{"none", plain<is_none>},
    Entry{"number", plain<is_number>},
    Entry{"odd", plain<is_odd>},
    Entry{"sameas", same},
    Entry{"sequence", plain<is_sequence>},
    Entry{"string", plain<is_string>},
    Entry{"test", plain<is_test>},
    Entry{"true", plain<is_true>},
    Entry{"undefined", plain<is_undefined>},
    Entry{"upper", plain<is_cased<true>>},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto* const found = std::find_if(kTests.begin(), kTests.end(),
                                         [&](const Entry& entry) { return entry.first == name; });
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace moepack::jinja
