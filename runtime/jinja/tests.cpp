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
  const TextPtr text = to_text(run, value);
  run.charge(text->bytes.size() / 6);
  return has_case(*text, kUpper);
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

bool is_filter(Run& run, const Value& value) {
  check_hashable(run, value);
  return value.text_or_null() != nullptr && find_filter(value.text_or_null()->bytes) != nullptr;
}

bool is_test(Run& run, const Value& value) {
  check_hashable(run, value);
  return value.text_or_null() != nullptr && find_test(value.text_or_null()->bytes) != nullptr;
}

using TestEntry = std::pair<std::string_view, Test>;
constexpr std::array kTests = {
    TestEntry{"!=", compared<Operation::kNotEqual>},
    TestEntry{"<", compared<Operation::kLess>},
    TestEntry{"<=", compared<Operation::kLessEqual>},
    TestEntry{"==", compared<Operation::kEqual>},
    TestEntry{">", compared<Operation::kGreater>},
    TestEntry{">=", compared<Operation::kGreaterEqual>},
    TestEntry{"boolean", plain<is_boolean>},
    TestEntry{"callable", plain<is_called>},
    TestEntry{"defined", plain<is_defined>},
    TestEntry{"divisibleby", divisible},
    TestEntry{"eq", compared<Operation::kEqual>},
    TestEntry{"equalto", compared<Operation::kEqual>},
    TestEntry{"escaped", plain<is_escaped>},
    TestEntry{"even", plain<is_even>},
    TestEntry{"false", plain<is_false>},
    TestEntry{"filter", plain<is_filter>},
    TestEntry{"float", plain<is_float>},
    TestEntry{"ge", compared<Operation::kGreaterEqual>},
    TestEntry{"greaterthan", compared<Operation::kGreater>},
    TestEntry{"gt", compared<Operation::kGreater>},
    TestEntry{"in", is_in},
    TestEntry{"integer", plain<is_integer>},
    TestEntry{"iterable", plain<is_iterable>},
    TestEntry{"le", compared<Operation::kLessEqual>},
    TestEntry{"lessthan", compared<Operation::kLess>},
    TestEntry{"lower", plain<is_cased<false>>},
    TestEntry{"lt", compared<Operation::kLess>},
    TestEntry{"mapping", plain<is_mapping>},
    TestEntry{"ne", compared<Operation::kNotEqual>},
    TestEntry{"none", plain<is_none>},
    TestEntry{"number", plain<is_number>},
    TestEntry{"odd", plain<is_odd>},
    TestEntry{"sameas", same},
    TestEntry{"sequence", plain<is_sequence>},
    TestEntry{"string", plain<is_string>},
    TestEntry{"test", plain<is_test>},
    TestEntry{"true", plain<is_true>},
    TestEntry{"undefined", plain<is_undefined>},
    TestEntry{"upper", plain<is_cased<true>>},
};

}  // namespace

Test find_test(std::string_view name) {
  const auto* const found = std::find_if(
      kTests.begin(), kTests.end(), [&](const TestEntry& entry) { return entry.first == name; });
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace moepack::jinja
