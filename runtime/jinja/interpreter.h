// Walks the tree of a template and writes its text.
#pragma once

#include <memory>
#include <vector>

#include "runtime/jinja/ast.h"
#include "runtime/jinja/value.h"

namespace moepack::jinja {

// The variables of one call of what would be a Python function.
struct Activation final : Breakable {
  Activation(std::shared_ptr<Activation> outer, std::uint32_t slots)
      : parent(std::move(outer)), variables(slots) {}
  std::shared_ptr<Activation> parent;
  std::vector<Value> variables;  // undefined without a hint: not set
  void break_circle() override { variables.clear(); }
  Share share;
};
using ActivationPtr = std::shared_ptr<Activation>;

// Where a statement runs: its variables, and where its text goes.
struct Frame {
  ActivationPtr activation;
  TextBuilder* out = nullptr;
  TextPtr block;  // the text that the filters of a block work on
};

class Interpreter {
 public:
  // `variables` are what the template sees by name.
  Interpreter(Run& run, const Dict& variables) : run_(run), variables_(variables) {}
  TextPtr render(const Tree& tree);
  // What an expression without names and calls stands for; nothing where it has some, or fails.
  static std::optional<Value> constant_value(Run& run, const Expression& expression);

  // The text of a loop marked recursive, over other items.
  TextPtr run_recursive_loop(const Statement& loop, const ActivationPtr& outer, const Value& items,
                             std::size_t depth);
  TextPtr run_macro(const MacroBody& macro, const ActivationPtr& outer, Arguments& arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // Statements (interpreter.cpp).
  Flow run_body(Frame& frame, const Body& body);
  Flow run_statement(Frame& frame, const Statement& statement);
  Flow run_if(Frame& frame, const Statement& statement);
  Flow run_for(Frame& frame, const Statement& loop, const Value& items, std::size_t depth,
               const ActivationPtr& outer);
  Flow run_captured(Frame& frame, const Statement& statement);
  Flow run_with(Frame& frame, const Statement& statement);
  void run_set(Frame& frame, const Statement& statement);
  void run_call_block(Frame& frame, const Statement& statement);
  void print(Frame& frame, const Statement& statement);
  Value filtered_items(const Statement& loop, const ActivationPtr& outer, const Value& items);
  Value make_macro(const MacroBody& macro, const ActivationPtr& outer);
  ActivationPtr activate(ActivationPtr outer, std::uint32_t slots);
  void enter(const Scope& scope, Frame& frame);
  static void leave(const Scope& scope, Frame& frame);
  void assign(Frame& frame, const Expression& target, const Value& value);
  static Value load_target(const Frame& frame, const Expression& target);
  Value resolve(const std::string& name) const;

  // Expressions (interpreter_expressions.cpp).
  Value evaluate(Frame& frame, const Expression& expression);
  Value evaluate_plain(Frame& frame, const Expression& expression);
  Value evaluate_name(const Frame& frame, const Expression& expression) const;
  Value evaluate_items(Frame& frame, const Expression& expression);
  Value evaluate_dict(Frame& frame, const Expression& expression);
  Value evaluate_binary(Frame& frame, const Expression& expression);
  Value evaluate_compare(Frame& frame, const Expression& expression);
  Value evaluate_concat(Frame& frame, const Expression& expression);
  Value evaluate_slice(Frame& frame, const Expression& expression);
  Value evaluate_filter(Frame& frame, const Expression& expression);
  Value evaluate_test(Frame& frame, const Expression& expression);
  Value evaluate_call(Frame& frame, const Expression& expression, const Value* caller);
  Arguments evaluate_arguments(Frame& frame, const CallArguments& arguments);

  Run& run_;
  const Dict& variables_;
  bool folds_ = false;        // at work on a constant, before any rendering
  std::uint32_t levels_ = 0;  // of values within the values that an expression is made from
};

// Variables that every template has: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now, lipsum.
void add_globals(Dict& variables);

// What `loop` is.
class Loop final : public Object {
 public:
  // `recurse` is the statement where the loop is marked recursive, else null.
  Loop(Run& run, Interpreter& interpreter, Value items, const Statement* recurse,
       ActivationPtr outer, std::size_t depth);
  bool next(Run& run, Value& value);
  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(Run& run, std::string_view name) override;
  std::optional<std::size_t> length(Run& run) override;
  bool callable() const override { return true; }
  Value call(Run& run, Arguments& arguments) override;
  std::optional<TextPtr> repr(Run& run) override;

 private:
  bool peek(Run& run);
  Value changed(Run& run, const Arguments& arguments);
  Interpreter& interpreter_;
  Value items_;
  IteratorPtr iterator_;
  const Statement* recurse_;
  ActivationPtr outer_;
  std::size_t depth_;
  std::int64_t index_ = -1;
  std::optional<std::size_t> length_;
  std::optional<Value> after_, before_, current_;
  ListPtr last_changed_;
};

// A name.attribute = value target.
void set_namespace_attribute(Run& run, const Value& target, const std::string& name, Value value);
bool is_namespace(const Value& value);

}  // namespace moepack::jinja
