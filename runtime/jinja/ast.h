// The tree of a template. The parser makes it, bind_names() gives names their slots, and from then
// on it does not change: any number of threads may render it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/jinja/error.h"
#include "runtime/jinja/value.h"

namespace moepack::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using StatementPtr = std::unique_ptr<Statement>;

// Where a variable lives: `hops` activations out, at `index` there.
struct Slot {
  std::uint32_t hops = 0;
  std::uint32_t index = 0;
};

// How a variable begins when its scope is entered.
struct Load {
  enum class Kind : std::uint8_t { kParameter, kResolve, kAlias, kMissing };
  Kind kind = Kind::kMissing;
  std::uint32_t target = 0;  // in the innermost activation
  std::string name;          // kResolve: of the caller's variable
  Slot source;               // kAlias
};
using Scope = std::vector<Load>;

enum class Operation : std::uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kNegate,
  kPlus,
  kNot,
  kAnd,
  kOr,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr more_positional;  // *x
  ExpressionPtr more_keywords;    // **x
};

// What `parts` hold, by kind.
enum class ExpressionKind : std::uint8_t {
  kConstant,     // value
  kName,         // name, slot
  kAttributeOf,  // name.attribute as a target of `set`: name, slot, value (the attribute)
  kTuple,
  kList,         // items
  kDict,         // key, value, key, value…
  kUnary,        // operand
  kBinary,       // left, right
  kCompare,      // first, then one for each of `operations`
  kConcat,       // two or more
  kConditional,  // condition, then, else (may be null)
  kAttribute,    // of; name
  kItem,         // of, key
  kSlice,        // of, start, stop, step (each may be null)
  kCall,         // callee; arguments
  kFilter,       // operand (null: the text of a block); name, arguments
  kTest,         // operand; name, arguments
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  Position at;
  std::uint32_t depth = 1;  // of the tree below
  std::string name;
  Value value;
  Operation operation = Operation::kAdd;
  std::vector<Operation> operations;
  std::vector<ExpressionPtr> parts;
  std::unique_ptr<CallArguments> arguments;
  Slot slot;
};

enum class StatementKind : std::uint8_t {
  kText,         // text
  kPrint,        // expressions
  kSet,          // target, value
  kSetBlock,     // target, value (filters or null), body
  kFor,          // target, value, test, body, otherwise
  kIf,           // branches, otherwise
  kMacro,        // macro
  kCallBlock,    // value (the call), macro (the body)
  kGeneration,   // macro (the body)
  kFilterBlock,  // value (filters), body
  kWith,         // expressions: target, value, target, value…; body
  kBreak,
  kContinue,
};
using Body = std::vector<StatementPtr>;

// A macro, or the body of a call block.
struct MacroBody {
  std::string name;
  std::vector<ExpressionPtr> parameters;  // kName
  std::vector<ExpressionPtr> defaults;    // of the last parameters
  Body body;
  bool takes_caller = false;  // as a parameter that is not written
  bool takes_keywords = false;
  bool takes_positional = false;
  Slot caller_slot, keywords_slot, positional_slot;
  Scope scope;
  std::uint32_t slots = 0;  // of its activation
};

struct Branch {
  ExpressionPtr test;
  Body body;
  Position at;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  Position at;
  TextPtr text;
  std::vector<ExpressionPtr> expressions;
  ExpressionPtr target;
  ExpressionPtr value;
  ExpressionPtr test;
  ExpressionPtr test_target;  // the same target, in the activation of the test
  Body body;
  Body otherwise;
  std::vector<Branch> branches;
  std::unique_ptr<MacroBody> macro;
  bool recursive = false;
  bool uses_loop = false;
  Slot loop_slot;
  Slot caller_slot;
  Scope scope;       // entered before the body
  Scope test_scope;  // of an activation of its own
  Scope else_scope;
  std::uint32_t slots = 0;       // of a recursive loop's activation
  std::uint32_t test_slots = 0;  // of the test's
};

struct Tree {
  Body body;
  Scope scope;
  std::uint32_t slots = 0;
};

// Throws Error; `at` is where it stood then.
Tree parse(std::string_view source, const Limits& limits, Position& at);
// Gives every name its slot by jinja2's rules of scope, and refuses what jinja2 refuses when it
// compiles: unknown filters outside of conditions, names that no scope has.
void bind_names(Tree& tree, Position& at);

}  // namespace moepack::jinja
