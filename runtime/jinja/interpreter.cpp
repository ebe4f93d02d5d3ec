#include "runtime/jinja/interpreter.h"

#include <algorithm>

#include "runtime/jinja/operators.h"
#include "runtime/jinja/print.h"

namespace moepack::jinja {
namespace {

class Macro final : public Object {
 public:
  Macro(Interpreter& interpreter, const MacroBody& body, ActivationPtr outer)
      : interpreter_(interpreter), body_(body), outer_(std::move(outer)) {}
  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value call(Run&, Arguments& arguments) override {
    return interpreter_.run_macro(body_, outer_, arguments);
  }
  std::optional<Value> attribute(Run&, std::string_view name) override {
    if (name == "name") return body_.name.empty() ? Value(None{}) : Value::text(body_.name);
    if (name == "caller") return Value(body_.takes_caller);
    if (name == "catch_kwargs") return Value(body_.takes_keywords);
    if (name == "catch_varargs") return Value(body_.takes_positional);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const ExpressionPtr& parameter : body_.parameters) {
      names.push_back(Value::text(parameter->name));
    }
    return Value::tuple(std::move(names));
  }
  std::optional<TextPtr> repr(Run&) override {
    return make_text(body_.name.empty() ? "<Macro anonymous>" : "<Macro '" + body_.name + "'>");
  }

 private:
  Interpreter& interpreter_;
  const MacroBody& body_;
  ActivationPtr outer_;
};

Value& variable(const Frame& frame, const Slot& slot) {
  Activation* activation = frame.activation.get();
  for (std::uint32_t i = 0; i < slot.hops; ++i) activation = activation->parent.get();
  return activation->variables[slot.index];
}

bool is_missing(const Value& value) {
  return value.is_undefined() && value.as<Undefined>()->hint == nullptr;
}

// What a block of Python's text can be joined with.
const Text& need_output(const Value& value) {
  if (value.text_or_null() == nullptr) {
    fail("expected a string as the text of a block, not '" + type_name(value) + "'");
  }
  return *value.text_or_null();
}

}  // namespace

TextPtr Interpreter::render(const Tree& tree) {
  TextBuilder out(run_);
  Frame frame{activate(nullptr, tree.slots), &out, nullptr};
  enter(tree.scope, frame);
  run_body(frame, tree.body);
  return out.finish();
}

ActivationPtr Interpreter::activate(ActivationPtr outer, std::uint32_t slots) {
  run_.charge(slots / 16);
  auto activation = std::make_shared<Activation>(std::move(outer), slots);
  activation->share.set(run_.memory(), sizeof(Activation) + slots * sizeof(Value));
  return activation;
}

Value Interpreter::resolve(const std::string& name) const {
  const Value* found = variables_.find(std::string_view(name));
  return found == nullptr ? Value() : *found;
}

void Interpreter::enter(const Scope& scope, Frame& frame) {
  for (const Load& load : scope) {
    Value& target = frame.activation->variables[load.target];
    switch (load.kind) {
      case Load::Kind::kParameter:
        break;
      case Load::Kind::kResolve:
        target = resolve(load.name);
        break;
      case Load::Kind::kAlias:
        target = variable(frame, load.source);
        break;
      case Load::Kind::kMissing:
        target = Value();
        break;
    }
  }
}

void Interpreter::leave(const Scope& scope, Frame& frame) {
  for (const Load& load : scope) frame.activation->variables[load.target] = Value();
}

Interpreter::Flow Interpreter::run_body(Frame& frame, const Body& body) {
  const Run::Depth depth(run_);
  for (const StatementPtr& statement : body) {
    const Flow flow = run_statement(frame, *statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_statement(Frame& frame, const Statement& statement) {
  run_.at = statement.at;
  run_.charge(1);
  switch (statement.kind) {
    case StatementKind::kText:
      frame.out->add(*statement.text);
      break;
    case StatementKind::kPrint:
      print(frame, statement);
      break;
    case StatementKind::kSet:
      run_set(frame, statement);
      break;
    case StatementKind::kSetBlock:
    case StatementKind::kFilterBlock:
      return run_captured(frame, statement);
    case StatementKind::kFor:
      if (!statement.recursive) {
        const Value items = evaluate(frame, *statement.value);
        return run_for(frame, statement, items, 0, frame.activation);
      } else {
        const Value items = evaluate(frame, *statement.value);
        frame.out->add(*run_recursive_loop(statement, frame.activation, items, 0));
      }
      break;
    case StatementKind::kIf:
      return run_if(frame, statement);
    case StatementKind::kMacro:
      variable(frame, statement.caller_slot) = make_macro(*statement.macro, frame.activation);
      break;
    case StatementKind::kCallBlock:
      run_call_block(frame, statement);
      break;
    case StatementKind::kGeneration: {
      Arguments none;
      frame.out->add(*run_macro(*statement.macro, frame.activation, none));
      break;
    }
    case StatementKind::kWith:
      return run_with(frame, statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Interpreter::print(Frame& frame, const Statement& statement) {
  for (const ExpressionPtr& expression : statement.expressions) {
    const Value value = evaluate(frame, *expression);
    frame.out->add(*to_text(run_, value));
  }
}

Interpreter::Flow Interpreter::run_if(Frame& frame, const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (truth(run_, evaluate(frame, *branch.test))) return run_body(frame, branch.body);
  }
  return run_body(frame, statement.otherwise);
}

void Interpreter::run_set(Frame& frame, const Statement& statement) {
  const auto check = [&](const Expression& target, const auto& again) -> void {
    for (const ExpressionPtr& part : target.parts) again(*part, again);
    if (target.kind == ExpressionKind::kAttributeOf &&
        !is_namespace(variable(frame, target.slot))) {
      fail("cannot assign attribute on non-namespace object");
    }
  };
  check(*statement.target, check);
  assign(frame, *statement.target, evaluate(frame, *statement.value));
}

void Interpreter::assign(Frame& frame, const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    variable(frame, target.slot) = value;
    return;
  }
  if (target.kind == ExpressionKind::kAttributeOf) {
    return set_namespace_attribute(run_, variable(frame, target.slot),
                                   target.value.text_or_null()->bytes, value);
  }
  const IteratorPtr iterator = iterate(run_, value);
  std::vector<Value> items;
  Value item;
  while (items.size() <= target.parts.size() && iterator->next(run_, item)) items.push_back(item);
  if (items.size() != target.parts.size()) {
    fail(items.size() < target.parts.size() ? "not enough values to unpack"
                                            : "too many values to unpack");
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(frame, *target.parts[i], items[i]);
}

Value Interpreter::load_target(const Frame& frame, const Expression& target) {
  if (target.kind == ExpressionKind::kName) return variable(frame, target.slot);
  std::vector<Value> items;
  for (const ExpressionPtr& part : target.parts) items.push_back(load_target(frame, *part));
  return Value::tuple(std::move(items));
}

// {% set x %}…{% endset %} and {% filter f %}…{% endfilter %}.
Interpreter::Flow Interpreter::run_captured(Frame& frame, const Statement& statement) {
  TextBuilder text(run_);
  Frame inner{frame.activation, &text, nullptr};
  enter(statement.scope, inner);
  const Flow flow = run_body(inner, statement.body);
  if (flow != Flow::kNext) return flow;
  inner.block = text.finish();
  Value value = Value(inner.block);
  if (statement.value != nullptr) value = evaluate(inner, *statement.value);
  run_.at = statement.at;
  if (statement.kind == StatementKind::kSetBlock) {
    assign(frame, *statement.target, value);
  } else {
    frame.out->add(need_output(value));
  }
  leave(statement.scope, frame);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_with(Frame& frame, const Statement& statement) {
  enter(statement.scope, frame);
  for (std::size_t i = 0; i < statement.expressions.size(); i += 2) {
    assign(frame, *statement.expressions[i], evaluate(frame, *statement.expressions[i + 1]));
  }
  const Flow flow = run_body(frame, statement.body);
  if (flow == Flow::kNext) leave(statement.scope, frame);
  return flow;
}

// The items that pass a loop's test, which runs when an item is asked for: it sees what the body
// has changed until then.
Value Interpreter::filtered_items(const Statement& loop, const ActivationPtr& outer,
                                  const Value& items) {
  run_.keep(outer);
  const auto next = [this, &loop, outer, items, under = IteratorPtr(), frame = Frame()](
                        Run& run, Value& value) mutable {
    if (under == nullptr) {
      frame.activation = activate(outer, loop.test_slots);
      enter(loop.test_scope, frame);
      under = iterate(run, items);
    }
    while (under->next(run, value)) {
      assign(frame, *loop.test_target, value);
      if (!truth(run, evaluate(frame, *loop.test))) continue;
      value = load_target(frame, *loop.test_target);
      return true;
    }
    return false;
  };
  return make_iterator(next);
}

Interpreter::Flow Interpreter::run_for(Frame& frame, const Statement& loop, const Value& items,
                                       std::size_t depth, const ActivationPtr& outer) {
  const std::uint32_t levels = count_held(run_, items, 0);
  const Value kept = loop.test == nullptr ? items : filtered_items(loop, outer, items);
  count_held(run_, kept, levels);
  std::shared_ptr<Loop> object;
  IteratorPtr plain;
  if (loop.uses_loop) {
    object =
        std::make_shared<Loop>(run_, *this, kept, loop.recursive ? &loop : nullptr, outer, depth);
    // It holds its items, and what they give.
    count_held(run_, Value(ObjectPtr(object)), levels + 2);
    run_.keep(frame.activation);
  } else {
    plain = iterate(run_, kept);
  }
  bool otherwise = true;
  Value item;
  while (object != nullptr ? object->next(run_, item) : plain->next(run_, item)) {
    assign(frame, *loop.target, item);
    if (object != nullptr) variable(frame, loop.loop_slot) = Value(ObjectPtr(object));
    enter(loop.scope, frame);
    const Flow flow = run_body(frame, loop.body);
    if (flow == Flow::kBreak) break;
    // As jinja2's own code has it: only a body that ran to its end takes the else branch away.
    if (flow == Flow::kNext) otherwise = false;
  }
  leave(loop.scope, frame);
  if (!otherwise || loop.otherwise.empty()) return Flow::kNext;
  enter(loop.else_scope, frame);
  const Flow flow = run_body(frame, loop.otherwise);
  if (flow == Flow::kNext) leave(loop.else_scope, frame);
  return flow;
}

TextPtr Interpreter::run_recursive_loop(const Statement& loop, const ActivationPtr& outer,
                                        const Value& items, std::size_t depth) {
  TextBuilder text(run_);
  Frame frame{activate(outer, loop.slots), &text, nullptr};
  run_for(frame, loop, items, depth, outer);
  return text.finish();
}

Value Interpreter::make_macro(const MacroBody& macro, const ActivationPtr& outer) {
  run_.keep(outer);
  return Value(ObjectPtr(std::make_shared<Macro>(*this, macro, outer)));
}

void Interpreter::run_call_block(Frame& frame, const Statement& statement) {
  const Value caller = make_macro(*statement.macro, frame.activation);
  const Value result = evaluate_call(frame, *statement.value, &caller);
  frame.out->add(need_output(result));
}

TextPtr Interpreter::run_macro(const MacroBody& macro, const ActivationPtr& outer,
                               Arguments& arguments) {
  const Run::Depth depth(run_);
  const Position called_at = run_.at;
  TextBuilder text(run_);
  Frame frame{activate(outer, macro.slots), &text, nullptr};
  auto& given = arguments.positional;
  auto& named = arguments.keywords;
  const auto take = [&](std::string_view name) {
    const auto found = std::find_if(named.begin(), named.end(),
                                    [&](const auto& entry) { return entry.first->bytes == name; });
    if (found == named.end()) return Value();
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  const std::size_t count = macro.parameters.size();
  for (std::size_t i = 0; i < count; ++i) {
    variable(frame, macro.parameters[i]->slot) =
        i < given.size() ? given[i] : take(macro.parameters[i]->name);
  }
  if (macro.takes_caller) {
    const Value caller = take("caller");
    variable(frame, macro.caller_slot) =
        is_missing(caller) || caller.is_none() ? Value::undefined("No caller defined") : caller;
  }
  if (macro.takes_keywords) {
    auto rest = std::make_shared<Dict>();
    for (const auto& [name, value] : named) rest->set(Value(name), value);
    variable(frame, macro.keywords_slot) = Value(rest);
  } else if (!named.empty()) {
    fail("macro '" + macro.name + "' takes no keyword argument '" + named[0].first->bytes + "'");
  }
  if (macro.takes_positional) {
    const auto from = static_cast<std::ptrdiff_t>(std::min(count, given.size()));
    variable(frame, macro.positional_slot) = Value::tuple({given.begin() + from, given.end()});
  } else if (given.size() > count) {
    fail("macro '" + macro.name + "' takes not more than " + std::to_string(count) +
         " argument(s)");
  }
  enter(macro.scope, frame);
  for (std::size_t i = 0; i < count; ++i) {
    Value& parameter = variable(frame, macro.parameters[i]->slot);
    if (!is_missing(parameter)) continue;
    const std::size_t plain = count - macro.defaults.size();
    parameter =
        i < plain
            ? Value::undefined("parameter '" + macro.parameters[i]->name + "' was not provided")
            : evaluate(frame, *macro.defaults[i - plain]);
  }
  run_body(frame, macro.body);
  run_.at = called_at;
  return text.finish();
}

}  // namespace moepack::jinja
