#include "runtime/jinja/fold.h"

#include "runtime/jinja/interpreter.h"
#include "runtime/jinja/print.h"
#include "runtime/jinja/walk.h"

namespace moepack::jinja {
namespace {

// Little: what takes longer is computed when it is rendered, within the rendering's limits.
constexpr Limits kFoldLimits = {.steps = 20'000, .text_bytes = 1 << 16, .list_items = 1 << 12};

// A value of the tree, which outlives the run that has computed it.
Value constant(const Value& value) {
  const Text* text = value.text_or_null();
  if (text == nullptr) return value;
  auto copy = std::make_shared<Text>(*text);
  copy->user.clear();
  return Value(TextPtr(std::move(copy)));
}

// The value as a literal, so that every rendering has lists of its own; null for what has none.
ExpressionPtr literal(const Value& value, Position at, std::size_t depth = 0) {
  if (value.is_undefined() || value.object_or_null() != nullptr || depth > 20) return nullptr;
  auto made = std::make_unique<Expression>();
  made->at = at;
  const auto add = [&](const Value& item) {
    made->parts.push_back(literal(item, at, depth + 1));
    return made->parts.back() != nullptr;
  };
  if (const auto* items = value.items()) {
    made->kind = value.list_or_null() != nullptr ? ExpressionKind::kList : ExpressionKind::kTuple;
    for (const Value& item : *items) {
      if (!add(item)) return nullptr;
    }
  } else if (const Dict* dict = value.dict_or_null()) {
    made->kind = ExpressionKind::kDict;
    for (const auto& [key, held] : dict->entries()) {
      if (!add(key) || !add(held)) return nullptr;
    }
  } else {
    made->value = constant(value);
  }
  return made;
}

bool is_literal(const Expression& expression) {
  return expression.kind == ExpressionKind::kConstant || expression.kind == ExpressionKind::kName ||
         expression.kind == ExpressionKind::kAttributeOf;
}

}  // namespace

void fold_constants(ExpressionPtr& expression) {
  if (expression == nullptr || is_literal(*expression)) return;
  for (ExpressionPtr& part : expression->parts) fold_constants(part);
  if (expression->arguments != nullptr) {
    CallArguments& arguments = *expression->arguments;
    for (ExpressionPtr& part : arguments.positional) fold_constants(part);
    for (auto& keyword : arguments.keywords) fold_constants(keyword.second);
    fold_constants(arguments.more_positional);
    fold_constants(arguments.more_keywords);
  }
  Run run(kFoldLimits, {});
  const auto value = Interpreter::constant_value(run, *expression);
  if (!value) return;
  if (ExpressionPtr made = literal(*value, expression->at)) expression = std::move(made);
}

void fold_printed(ExpressionPtr& expression) {
  fold_constants(expression);
  Run run(kFoldLimits, {});
  const auto value = Interpreter::constant_value(run, *expression);
  if (!value) return;
  try {
    auto made = std::make_unique<Expression>();
    made->at = expression->at;
    made->value = constant(Value(to_text(run, *value)));
    expression = std::move(made);
  } catch (const Error&) {  // its text is made when it is rendered, or fails there
  }
}

}  // namespace moepack::jinja
