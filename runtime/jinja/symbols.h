// Which variable a name means, found before anything runs. jinja2 turns a template into Python
// functions whose local variables are the template's names; what a name means in a loop, a macro
// or a branch follows from that, and so it is imitated here: an activation per function, and a
// variable per scope depth and name in it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/jinja/ast.h"

namespace moepack::jinja {

// What would be one Python function: the template, a macro, a recursive loop, a loop's test.
struct FunctionScope {
  const FunctionScope* parent = nullptr;
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> variables;
};

// The names of one scope.
class Symbols {
 public:
  Symbols(Symbols* parent, FunctionScope* function)
      : parent_(parent), function_(function), level_(parent == nullptr ? 0 : parent->level_ + 1) {}

  FunctionScope* function() const { return function_; }
  void load(const std::string& name);
  void store(const std::string& name);
  void declare_parameter(const std::string& name);
  // Takes over what the branches of a condition, copies of this scope, have learned.
  void join(const std::vector<Symbols>& branches);

  // The variable that `name` means, as seen from this scope's function; an error without one.
  Slot slot(const std::string& name) const;
  Scope scope() const;

 private:
  struct Variable {
    const FunctionScope* function = nullptr;
    std::uint32_t index = 0;
  };
  struct Beginning {
    Load::Kind kind;
    std::string name;
    Variable source;
  };
  void define(const std::string& name, Beginning beginning);
  const Variable* find(const std::string& name) const;
  Slot slot_of(const Variable& variable) const;

  Symbols* parent_;
  FunctionScope* function_;
  std::uint32_t level_;
  std::map<std::string, Variable> names_;
  std::map<std::uint32_t, Beginning> beginnings_;  // by index in function_
  std::set<std::string> stored_;
};

}  // namespace moepack::jinja
