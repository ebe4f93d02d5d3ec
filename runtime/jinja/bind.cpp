#include <algorithm>
#include <deque>
#include <set>

#include "runtime/jinja/ast.h"
#include "runtime/jinja/filters.h"
#include "runtime/jinja/fold.h"
#include "runtime/jinja/symbols.h"
#include "runtime/jinja/tests.h"
#include "runtime/jinja/walk.h"

namespace moepack::jinja {
namespace {

void note_expression(Symbols& symbols, const Expression* expression) {
  if (expression == nullptr) return;
  if (expression->kind == ExpressionKind::kName) return symbols.load(expression->name);
  for_each_part(*expression, [&](const Expression& part) { note_expression(symbols, &part); });
}

void note_target(Symbols& symbols, const Expression& target, bool as_parameter) {
  if (target.kind == ExpressionKind::kTuple) {
    for (const ExpressionPtr& part : target.parts) note_target(symbols, *part, as_parameter);
  } else if (target.kind == ExpressionKind::kAttributeOf) {
    symbols.load(target.name);
  } else if (as_parameter) {
    symbols.declare_parameter(target.name);
  } else {
    symbols.store(target.name);
  }
}

void note_body(Symbols& symbols, const Body& body);

void note_condition(Symbols& symbols, const Statement& statement, std::size_t branch) {
  note_expression(symbols, statement.branches[branch].test.get());
  Symbols taken = symbols;
  note_body(taken, statement.branches[branch].body);
  Symbols others = symbols;
  Symbols otherwise = symbols;
  if (branch == 0) {
    for (std::size_t i = 1; i < statement.branches.size(); ++i)
      note_condition(others, statement, i);
    note_body(otherwise, statement.otherwise);
  }
  symbols.join({taken, others, otherwise});
}

// What a statement means for the scope around it.
void note_statement(Symbols& symbols, const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kPrint:
      for (const auto& printed : statement.expressions) note_expression(symbols, printed.get());
      break;
    case StatementKind::kSet:
      note_expression(symbols, statement.value.get());
      note_target(symbols, *statement.target, false);
      break;
    case StatementKind::kSetBlock:
      note_target(symbols, *statement.target, false);
      break;
    case StatementKind::kIf:
      note_condition(symbols, statement, 0);
      break;
    case StatementKind::kMacro:
      symbols.store(statement.macro->name);
      break;
    case StatementKind::kFor:
    case StatementKind::kCallBlock:
    case StatementKind::kFilterBlock:
      note_expression(symbols, statement.value.get());
      break;
    case StatementKind::kWith:
      for (std::size_t i = 1; i < statement.expressions.size(); i += 2) {
        note_expression(symbols, statement.expressions[i].get());
      }
      break;
    default:
      break;
  }
}

void note_body(Symbols& symbols, const Body& body) {
  for (const StatementPtr& statement : body) note_statement(symbols, *statement);
}

// Which of `names` a body reads before it writes them.
class UndeclaredNames {
 public:
  explicit UndeclaredNames(std::set<std::string> names) : names_(std::move(names)) {}
  std::set<std::string> in(const Body& body) {
    walk_names(body, [this](const Expression& name, NameUse use) {
      if (use == NameUse::kLoad && names_.contains(name.name)) {
        found_.insert(name.name);
      } else if (use != NameUse::kLoad) {
        names_.erase(name.name);
      }
    });
    return found_;
  }

 private:
  std::set<std::string> names_;
  std::set<std::string> found_;
};

class Binder {
 public:
  explicit Binder(Position& at) : at_(at) {}
  void bind(Tree& tree);

 private:
  FunctionScope* new_function(const FunctionScope* parent) {
    functions_.push_back({parent, {}});
    return &functions_.back();
  }
  static std::uint32_t slots(const FunctionScope& function) {
    return static_cast<std::uint32_t>(function.variables.size());
  }
  // `lenient`: within a condition, where an unknown filter is an error only when it is used.
  void bind_expression(Symbols& symbols, Expression* expression, bool lenient);
  void bind_target(Symbols& symbols, Expression& target);
  void bind_body(Symbols& symbols, Body& body, bool lenient);
  static void fold(Statement& statement);
  void bind_statement(Symbols& symbols, Statement& statement, bool lenient);
  void bind_for(Symbols& symbols, Statement& loop, bool lenient);
  void bind_loop_test(Symbols& symbols, Statement& loop);
  void bind_macro(Symbols& symbols, MacroBody& macro);
  void note_macro(Symbols& symbols, const MacroBody& macro);
  void bind_inner_body(Symbols& symbols, Statement& statement);
  void bind_with(Symbols& symbols, Statement& statement, bool lenient);

  Position& at_;
  std::deque<FunctionScope> functions_;
};

void Binder::bind(Tree& tree) {
  FunctionScope* function = new_function(nullptr);
  Symbols symbols(nullptr, function);
  note_body(symbols, tree.body);
  bind_body(symbols, tree.body, false);
  tree.scope = symbols.scope();
  tree.slots = slots(*function);
}

void Binder::bind_expression(Symbols& symbols, Expression* expression, bool lenient) {
  if (expression == nullptr) return;
  at_ = expression->at;
  switch (expression->kind) {
    case ExpressionKind::kName:
      expression->slot = symbols.slot(expression->name);
      return;
    case ExpressionKind::kFilter:
      if (!lenient && find_filter(expression->name) == nullptr) {
        fail("no filter named '" + expression->name + "'", ErrorKind::kSyntax);
      }
      break;
    case ExpressionKind::kTest:
      if (!lenient && find_test(expression->name) == nullptr) {
        fail("no test named '" + expression->name + "'", ErrorKind::kSyntax);
      }
      break;
    case ExpressionKind::kConditional:
      lenient = true;
      break;
    default:
      break;
  }
  for_each_part(*expression, [&](Expression& part) { bind_expression(symbols, &part, lenient); });
}

void Binder::bind_target(Symbols& symbols, Expression& target) {
  if (target.kind == ExpressionKind::kTuple) {
    for (ExpressionPtr& part : target.parts) bind_target(symbols, *part);
  } else {
    at_ = target.at;
    target.slot = symbols.slot(target.name);
  }
}

void Binder::bind_body(Symbols& symbols, Body& body, bool lenient) {
  for (StatementPtr& statement : body) bind_statement(symbols, *statement, lenient);
}

// Before names are bound: what is folded away needs none. The names' scopes are known by then.
void Binder::fold(Statement& statement) {
  const bool with = statement.kind == StatementKind::kWith;
  for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
    if (!with) fold_printed(statement.expressions[i]);
    if (with && i % 2 == 1) fold_constants(statement.expressions[i]);
  }
  if (statement.kind != StatementKind::kCallBlock) fold_constants(statement.value);
  fold_constants(statement.test);
  for (Branch& branch : statement.branches) fold_constants(branch.test);
  if (statement.macro != nullptr) {
    for (ExpressionPtr& value : statement.macro->defaults) fold_constants(value);
  }
}

void Binder::bind_statement(Symbols& symbols, Statement& statement, bool lenient) {
  at_ = statement.at;
  fold(statement);
  switch (statement.kind) {
    case StatementKind::kPrint:
      for (auto& printed : statement.expressions) bind_expression(symbols, printed.get(), lenient);
      break;
    case StatementKind::kSet:
      bind_target(symbols, *statement.target);
      bind_expression(symbols, statement.value.get(), lenient);
      break;
    case StatementKind::kSetBlock:
    case StatementKind::kFilterBlock:
      bind_inner_body(symbols, statement);
      break;
    case StatementKind::kFor:
      bind_for(symbols, statement, lenient);
      break;
    case StatementKind::kIf:
      for (Branch& branch : statement.branches) {
        bind_expression(symbols, branch.test.get(), true);
        bind_body(symbols, branch.body, true);
      }
      bind_body(symbols, statement.otherwise, true);
      break;
    case StatementKind::kMacro:
      bind_macro(symbols, *statement.macro);
      statement.caller_slot = symbols.slot(statement.macro->name);
      break;
    case StatementKind::kCallBlock:
    case StatementKind::kGeneration:
      bind_macro(symbols, *statement.macro);
      bind_expression(symbols, statement.value.get(), lenient);
      break;
    case StatementKind::kWith:
      bind_with(symbols, statement, lenient);
      break;
    default:
      break;
  }
}

void Binder::bind_inner_body(Symbols& symbols, Statement& statement) {
  Symbols inner(&symbols, symbols.function());
  note_body(inner, statement.body);
  if (statement.kind == StatementKind::kFilterBlock) {
    note_expression(inner, statement.value.get());
  }
  bind_body(inner, statement.body, false);
  if (statement.target != nullptr) bind_target(symbols, *statement.target);
  bind_expression(inner, statement.value.get(), false);
  statement.scope = inner.scope();
}

void Binder::bind_with(Symbols& symbols, Statement& statement, bool lenient) {
  Symbols inner(&symbols, symbols.function());
  for (std::size_t i = 0; i < statement.expressions.size(); i += 2) {
    note_target(inner, *statement.expressions[i], true);
  }
  note_body(inner, statement.body);
  for (std::size_t i = 0; i < statement.expressions.size(); i += 2) {
    bind_target(inner, *statement.expressions[i]);
    bind_expression(symbols, statement.expressions[i + 1].get(), lenient);
  }
  bind_body(inner, statement.body, false);
  statement.scope = inner.scope();
}

void Binder::bind_loop_test(Symbols& symbols, Statement& loop) {
  FunctionScope* function = new_function(symbols.function());
  Symbols inner(&symbols, function);
  note_target(inner, *loop.target, true);
  note_expression(inner, loop.test.get());
  loop.test_target = clone_target(*loop.target);
  bind_target(inner, *loop.test_target);
  bind_expression(inner, loop.test.get(), false);
  loop.test_scope = inner.scope();
  loop.test_slots = slots(*function);
}

void Binder::bind_for(Symbols& symbols, Statement& loop, bool lenient) {
  walk_names(loop, [this](const Expression& name, NameUse use) {
    if (use != NameUse::kStore || name.name != "loop") return;
    at_ = name.at;
    fail("cannot assign to the special variable 'loop' in a loop", ErrorKind::kSyntax);
  });
  FunctionScope* function = loop.recursive ? new_function(symbols.function()) : symbols.function();
  Symbols inner(&symbols, function);
  Symbols otherwise(&symbols, function);
  loop.uses_loop = loop.recursive || !UndeclaredNames({"loop"}).in(loop.body).empty();
  if (loop.uses_loop) inner.declare_parameter("loop");
  note_target(inner, *loop.target, true);
  note_body(inner, loop.body);
  note_body(otherwise, loop.otherwise);
  if (loop.test != nullptr) bind_loop_test(symbols, loop);
  bind_target(inner, *loop.target);
  if (loop.uses_loop) loop.loop_slot = inner.slot("loop");
  bind_expression(symbols, loop.value.get(), lenient);
  bind_body(inner, loop.body, false);
  bind_body(otherwise, loop.otherwise, false);
  loop.scope = inner.scope();
  loop.else_scope = otherwise.scope();
  if (loop.recursive) loop.slots = slots(*function);
}

void Binder::note_macro(Symbols& symbols, const MacroBody& macro) {
  for (const ExpressionPtr& parameter : macro.parameters) {
    symbols.declare_parameter(parameter->name);
  }
  for (const ExpressionPtr& value : macro.defaults) note_expression(symbols, value.get());
  note_body(symbols, macro.body);
}

void Binder::bind_macro(Symbols& symbols, MacroBody& macro) {
  FunctionScope* function = new_function(symbols.function());
  Symbols inner(&symbols, function);
  note_macro(inner, macro);
  const auto has_parameter = [&](std::string_view name) {
    return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                       [&](const ExpressionPtr& parameter) { return parameter->name == name; });
  };
  const auto undeclared = UndeclaredNames({"caller", "kwargs", "varargs"}).in(macro.body);
  const auto takes = [&](const char* name) {
    if (!undeclared.contains(name) || has_parameter(name)) return false;
    inner.declare_parameter(name);
    return true;
  };
  if (undeclared.contains("caller") && has_parameter("caller")) {
    const std::size_t plain = macro.parameters.size() - macro.defaults.size();
    for (std::size_t i = 0; i < plain; ++i) {
      if (macro.parameters[i]->name == "caller") {
        fail("the parameter 'caller' must have a default", ErrorKind::kSyntax);
      }
    }
  }
  macro.takes_caller = takes("caller");
  macro.takes_keywords = takes("kwargs");
  macro.takes_positional = takes("varargs");
  note_macro(inner, macro);
  if (macro.takes_caller) macro.caller_slot = inner.slot("caller");
  if (macro.takes_keywords) macro.keywords_slot = inner.slot("kwargs");
  if (macro.takes_positional) macro.positional_slot = inner.slot("varargs");
  for (ExpressionPtr& parameter : macro.parameters) bind_target(inner, *parameter);
  for (ExpressionPtr& value : macro.defaults) bind_expression(inner, value.get(), false);
  bind_body(inner, macro.body, false);
  macro.scope = inner.scope();
  macro.slots = slots(*function);
}

}  // namespace

void bind_names(Tree& tree, Position& at) { Binder(at).bind(tree); }

}  // namespace moepack::jinja
