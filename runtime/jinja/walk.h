// Ways over the tree of a template.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/jinja/ast.h"

namespace moepack::jinja {

// Calls visit(part) for every direct part of an expression, in the order of evaluation.
template <typename Node, typename Visit>
void for_each_part(Node& expression, const Visit& visit) {
  const auto one = [&](auto& part) {
    if (part != nullptr) visit(*part);
  };
  for (auto& part : expression.parts) one(part);
  if (expression.arguments == nullptr) return;
  for (auto& part : expression.arguments->positional) one(part);
  for (auto& keyword : expression.arguments->keywords) one(keyword.second);
  one(expression.arguments->more_positional);
  one(expression.arguments->more_keywords);
}

enum class NameUse : std::uint8_t { kLoad, kStore, kParameter };
using VisitName = std::function<void(const Expression& name, NameUse use)>;

// Every name in statements, however deep, in the order in which jinja2 walks its tree.
void walk_names(const Body& body, const VisitName& visit);
void walk_names(const Statement& statement, const VisitName& visit);

// A copy of what a loop assigns to.
ExpressionPtr clone_target(const Expression& target);

}  // namespace moepack::jinja
