#include "runtime/jinja/walk.h"

namespace moepack::jinja {
namespace {

void walk_expression(const Expression* expression, const VisitName& visit) {
  if (expression == nullptr) return;
  if (expression->kind == ExpressionKind::kName) return visit(*expression, NameUse::kLoad);
  for_each_part(*expression, [&](const Expression& part) { walk_expression(&part, visit); });
}

void walk_target(const Expression* target, NameUse use, const VisitName& visit) {
  if (target == nullptr) return;
  if (target->kind == ExpressionKind::kName) visit(*target, use);
  for (const ExpressionPtr& part : target->parts) walk_target(part.get(), use, visit);
}

void walk_macro(const MacroBody& macro, const VisitName& visit) {
  for (const auto& parameter : macro.parameters) {
    walk_target(parameter.get(), NameUse::kParameter, visit);
  }
  for (const auto& value : macro.defaults) walk_expression(value.get(), visit);
  walk_names(macro.body, visit);
}

}  // namespace

void walk_names(const Statement& statement, const VisitName& visit) {
  walk_target(statement.target.get(), NameUse::kStore, visit);
  if (statement.kind == StatementKind::kWith) {
    for (std::size_t i = 0; i < statement.expressions.size(); i += 2) {
      walk_target(statement.expressions[i].get(), NameUse::kParameter, visit);
    }
    for (std::size_t i = 1; i < statement.expressions.size(); i += 2) {
      walk_expression(statement.expressions[i].get(), visit);
    }
  } else {
    for (const auto& expression : statement.expressions) walk_expression(expression.get(), visit);
  }
  const bool value_last = statement.kind == StatementKind::kFilterBlock;
  if (!value_last) walk_expression(statement.value.get(), visit);
  for (const Branch& branch : statement.branches) {
    walk_expression(branch.test.get(), visit);
    walk_names(branch.body, visit);
  }
  walk_names(statement.body, visit);
  walk_names(statement.otherwise, visit);
  walk_expression(statement.test.get(), visit);
  if (value_last) walk_expression(statement.value.get(), visit);
  if (statement.macro != nullptr) walk_macro(*statement.macro, visit);
}

void walk_names(const Body& body, const VisitName& visit) {
  for (const StatementPtr& statement : body) walk_names(*statement, visit);
}

ExpressionPtr clone_target(const Expression& target) {
  auto copy = std::make_unique<Expression>();
  copy->kind = target.kind;
  copy->at = target.at;
  copy->depth = target.depth;
  copy->name = target.name;
  copy->value = target.value;
  for (const ExpressionPtr& part : target.parts) copy->parts.push_back(clone_target(*part));
  return copy;
}

}  // namespace moepack::jinja
