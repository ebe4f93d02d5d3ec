#include <algorithm>
#include <utility>

#include "runtime/jinja/filters.h"
#include "runtime/jinja/interpreter.h"
#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/tests.h"

namespace moepack::jinja {
namespace {

constexpr std::size_t kMostOfName = 200;  // bytes of a name in a message

[[noreturn]] void fail_not_constant() { fail("not a constant"); }

}  // namespace

std::optional<Value> Interpreter::constant_value(Run& run, const Expression& expression) {
  const Dict no_variables;
  Interpreter interpreter(run, no_variables);
  interpreter.folds_ = true;
  Frame frame;
  try {
    return interpreter.evaluate(frame, expression);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Value Interpreter::evaluate(Frame& frame, const Expression& expression) {
  const Run::Depth depth(run_);
  run_.charge(1);
  run_.at = expression.at;
  const std::uint32_t outer = std::exchange(levels_, 0);
  Value value = evaluate_plain(frame, expression);
  levels_ = std::max(outer, count_held(run_, value, levels_));
  return value;
}

Value Interpreter::evaluate_plain(Frame& frame, const Expression& expression) {
  const auto part = [&](std::size_t i) { return evaluate(frame, *expression.parts[i]); };
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.value;
    case ExpressionKind::kName:
      return evaluate_name(frame, expression);
    case ExpressionKind::kTuple:
    case ExpressionKind::kList:
      return evaluate_items(frame, expression);
    case ExpressionKind::kDict:
      return evaluate_dict(frame, expression);
    case ExpressionKind::kUnary: {
      const Value value = part(0);
      run_.at = expression.at;
      return unary(run_, expression.operation, value);
    }
    case ExpressionKind::kBinary:
      return evaluate_binary(frame, expression);
    case ExpressionKind::kCompare:
      return evaluate_compare(frame, expression);
    case ExpressionKind::kConcat:
      return evaluate_concat(frame, expression);
    case ExpressionKind::kConditional:
      if (truth(run_, part(0))) return part(1);
      if (expression.parts[2] != nullptr) return part(2);
      if (folds_) fail_not_constant();
      return Value::undefined("the condition was false, and no else section was defined");
    case ExpressionKind::kAttribute: {
      const Value of = part(0);
      run_.at = expression.at;
      return get_attribute(run_, of, expression.name);
    }
    case ExpressionKind::kItem: {
      const Value of = part(0);
      const Value key = part(1);
      run_.at = expression.at;
      return get_item(run_, of, key);
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(frame, expression);
    case ExpressionKind::kCall:
      return evaluate_call(frame, expression, nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(frame, expression);
    case ExpressionKind::kTest:
      return evaluate_test(frame, expression);
    default:
      fail("this cannot be evaluated", ErrorKind::kSyntax);
  }
}

Value Interpreter::evaluate_name(const Frame& frame, const Expression& expression) const {
  if (folds_) fail_not_constant();
  run_.charge(expression.name.size() / 64);
  const Activation* activation = frame.activation.get();
  for (std::uint32_t i = 0; i < expression.slot.hops; ++i) activation = activation->parent.get();
  const Value& value = activation->variables[expression.slot.index];
  if (value.is_undefined() && value.as<Undefined>()->hint == nullptr) {
    return Value::undefined("'" + expression.name.substr(0, kMostOfName) + "' is undefined");
  }
  return value;
}

Value Interpreter::evaluate_items(Frame& frame, const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.parts.size());
  for (const ExpressionPtr& part : expression.parts) items.push_back(evaluate(frame, *part));
  return expression.kind == ExpressionKind::kList ? Value::list(std::move(items))
                                                  : Value::tuple(std::move(items));
}

Value Interpreter::evaluate_dict(Frame& frame, const Expression& expression) {
  auto dict = std::make_shared<Dict>();
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(frame, *expression.parts[i]);
    Value value = evaluate(frame, *expression.parts[i + 1]);
    check_hashable(run_, key);
    dict->set(key, std::move(value));
  }
  return Value(std::move(dict));
}

Value Interpreter::evaluate_binary(Frame& frame, const Expression& expression) {
  Value left = evaluate(frame, *expression.parts[0]);
  if (expression.operation == Operation::kAnd || expression.operation == Operation::kOr) {
    if (truth(run_, left) == (expression.operation == Operation::kOr)) return left;
    return evaluate(frame, *expression.parts[1]);
  }
  const Value right = evaluate(frame, *expression.parts[1]);
  run_.at = expression.at;
  return binary(run_, expression.operation, left, right);
}

Value Interpreter::evaluate_compare(Frame& frame, const Expression& expression) {
  Value left = evaluate(frame, *expression.parts[0]);
  for (std::size_t i = 0; i < expression.operations.size(); ++i) {
    Value right = evaluate(frame, *expression.parts[i + 1]);
    run_.at = expression.at;
    if (!compare(run_, expression.operations[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate_concat(Frame& frame, const Expression& expression) {
  std::vector<Value> values;
  for (const ExpressionPtr& part : expression.parts) values.push_back(evaluate(frame, *part));
  TextBuilder text(run_);
  for (const Value& value : values) text.add(*to_text(run_, value));
  return text.finish();
}

Value Interpreter::evaluate_slice(Frame& frame, const Expression& expression) {
  const Value of = evaluate(frame, *expression.parts[0]);
  Value bounds[3];
  const Value* given[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    if (expression.parts[i + 1] == nullptr) continue;
    bounds[i] = evaluate(frame, *expression.parts[i + 1]);
    given[i] = &bounds[i];
  }
  run_.at = expression.at;
  if (folds_) {  // jinja2 takes slices of constants as items, of which there may be none
    need_defined(of);
    try {
      return get_slice(run_, of, given[0], given[1], given[2]);
    } catch (const Error&) {
      return Value::undefined("a constant that cannot be sliced");
    }
  }
  return get_slice(run_, of, given[0], given[1], given[2]);
}

Value Interpreter::evaluate_filter(Frame& frame, const Expression& expression) {
  const Filter filter = find_filter(expression.name);
  if (folds_ && (expression.parts[0] == nullptr || find_selecting_filter(expression.name))) {
    fail_not_constant();
  }
  const Value operand =
      expression.parts[0] == nullptr ? Value(frame.block) : evaluate(frame, *expression.parts[0]);
  Arguments arguments = evaluate_arguments(frame, *expression.arguments);
  run_.at = expression.at;
  if (filter == nullptr) fail("no filter named '" + expression.name + "'");
  return filter(run_, operand, arguments);
}

Value Interpreter::evaluate_test(Frame& frame, const Expression& expression) {
  const Test test = find_test(expression.name);
  const Value operand = evaluate(frame, *expression.parts[0]);
  Arguments arguments = evaluate_arguments(frame, *expression.arguments);
  run_.at = expression.at;
  if (test == nullptr) fail("no test named '" + expression.name + "'");
  return Value(test(run_, operand, arguments));
}

Value Interpreter::evaluate_call(Frame& frame, const Expression& expression, const Value* caller) {
  if (folds_) fail_not_constant();
  const Value callee = evaluate(frame, *expression.parts[0]);
  Arguments arguments = evaluate_arguments(frame, *expression.arguments);
  if (caller != nullptr) {
    for (const auto& keyword : arguments.keywords) {
      if (keyword.first->bytes == "caller") fail("a call block's call has a 'caller' already");
    }
    arguments.keywords.emplace_back(make_text("caller"), *caller);
  }
  run_.at = expression.at;
  return call(run_, callee, arguments);
}

Arguments Interpreter::evaluate_arguments(Frame& frame, const CallArguments& arguments) {
  Arguments values;
  for (const ExpressionPtr& argument : arguments.positional) {
    values.positional.push_back(evaluate(frame, *argument));
  }
  if (arguments.more_positional != nullptr) {
    const Value more = evaluate(frame, *arguments.more_positional);
    for (Value& value : to_vector(run_, more)) values.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : arguments.keywords) {
    values.keywords.emplace_back(make_text(name), evaluate(frame, *argument));
  }
  if (arguments.more_keywords == nullptr) return values;
  const Value more = evaluate(frame, *arguments.more_keywords);
  const Dict* dict = more.dict_or_null();
  if (dict == nullptr) fail("the value behind ** must be a mapping");
  run_.charge_items(dict->size());
  const std::size_t written = values.keywords.size();
  for (const auto& [key, value] : dict->entries()) {
    const TextPtr* name = key.as<TextPtr>();
    if (name == nullptr) fail("keywords must be strings");
    for (std::size_t i = 0; i < written; ++i) {
      if (values.keywords[i].first->bytes == (*name)->bytes) {
        fail("the argument '" + (*name)->bytes + "' twice");
      }
    }
    values.keywords.emplace_back(*name, value);
  }
  return values;
}

}  // namespace moepack::jinja
