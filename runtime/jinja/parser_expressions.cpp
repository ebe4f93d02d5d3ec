#include <algorithm>
#include <array>

#include "runtime/jinja/parser.h"

namespace moepack::jinja {
namespace {

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" ||
         name == "None";
}

std::uint32_t depth_of(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}

std::uint32_t depth_of(const CallArguments& arguments) {
  std::uint32_t depth =
      std::max(depth_of(arguments.more_positional), depth_of(arguments.more_keywords));
  for (const ExpressionPtr& value : arguments.positional) depth = std::max(depth, depth_of(value));
  for (const auto& keyword : arguments.keywords) depth = std::max(depth, depth_of(keyword.second));
  return depth;
}

}  // namespace

ExpressionPtr Parser::node_of(ExpressionKind kind, Position at) {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->at = at;
  return expression;
}

ExpressionPtr Parser::finish(ExpressionPtr expression) const {
  std::uint32_t depth = 0;
  for (const ExpressionPtr& part : expression->parts) depth = std::max(depth, depth_of(part));
  if (expression->arguments != nullptr) {
    depth = std::max(depth, depth_of(*expression->arguments));
  }
  expression->depth = depth + 1;
  // Chains such as a + b + c + … are deep too, though they are parsed without recursion.
  if (expression->depth > 2 * limits_.nesting) {
    fail("an expression deeper than " + std::to_string(2 * limits_.nesting) + " levels",
         ErrorKind::kLimit);
  }
  return expression;
}

ExpressionPtr Parser::binary(Operation operation, ExpressionPtr left, ExpressionPtr right) const {
  ExpressionPtr expression = node(ExpressionKind::kBinary, left->at);
  expression->operation = operation;
  expression->parts.push_back(std::move(left));
  expression->parts.push_back(std::move(right));
  return finish(std::move(expression));
}

void Parser::check_target(const Expression& target) {
  if (target.kind == ExpressionKind::kTuple) {
    for (const ExpressionPtr& part : target.parts) check_target(*part);
    return;
  }
  const bool name = target.kind == ExpressionKind::kName && !is_constant_name(target.name);
  if (!name && target.kind != ExpressionKind::kAttributeOf) refuse("cannot assign to this");
}

ExpressionPtr Parser::parse_target(bool with_attributes, Words ends) {
  ExpressionPtr target = parse_tuple({.simple = true, .attributes = with_attributes, .ends = ends});
  check_target(*target);
  return target;
}

ExpressionPtr Parser::parse_name_target() {
  ExpressionPtr target = node(ExpressionKind::kName, now().at);
  target->name = take_name();
  check_target(*target);
  return target;
}

bool Parser::at_tuple_end(Words ends) const {
  return sees(TokenKind::kVariableEnd) || sees(TokenKind::kBlockEnd) || sees_operator(")") ||
         sees_any_name(ends);
}

ExpressionPtr Parser::parse_tuple(const TupleRules& rules) {
  ExpressionPtr tuple = node(ExpressionKind::kTuple, now().at);
  bool is_tuple = false;
  for (;;) {
    if (!tuple->parts.empty()) expect_operator(",");
    if (at_tuple_end(rules.ends)) break;
    tuple->parts.push_back(rules.simple ? parse_primary(rules.attributes)
                                        : parse_expression(rules.conditional));
    if (!sees_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->parts.empty()) return std::move(tuple->parts.front());
    if (!rules.parenthesized) refuse("expected an expression, got " + describe());
  }
  return finish(std::move(tuple));
}

ExpressionPtr Parser::parse_expression(bool conditional) {
  const Level level(*this);
  return conditional ? parse_conditional() : parse_or();
}

ExpressionPtr Parser::parse_conditional() {
  ExpressionPtr value = parse_or();
  while (skip_name("if")) {
    ExpressionPtr choice = node(ExpressionKind::kConditional, value->at);
    choice->parts.push_back(parse_or());
    choice->parts.push_back(std::move(value));
    const Level level(*this);
    choice->parts.push_back(skip_name("else") ? parse_conditional() : nullptr);
    value = finish(std::move(choice));
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (skip_name("or")) left = binary(Operation::kOr, std::move(left), parse_and());
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (skip_name("and")) left = binary(Operation::kAnd, std::move(left), parse_not());
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!sees_name("not")) return parse_comparison();
  const Level level(*this);
  ExpressionPtr expression = node(ExpressionKind::kUnary, now().at);
  take();
  expression->operation = Operation::kNot;
  expression->parts.push_back(parse_not());
  return finish(std::move(expression));
}

ExpressionPtr Parser::parse_comparison() {
  static constexpr std::array<std::pair<std::string_view, Operation>, 6> kComparisons = {{
      {"==", Operation::kEqual},
      {"!=", Operation::kNotEqual},
      {"<", Operation::kLess},
      {"<=", Operation::kLessEqual},
      {">", Operation::kGreater},
      {">=", Operation::kGreaterEqual},
  }};
  ExpressionPtr comparison = node(ExpressionKind::kCompare, now().at);
  comparison->parts.push_back(parse_sum());
  for (;;) {
    const auto* const found =
        std::find_if(kComparisons.begin(), kComparisons.end(),
                     [this](const auto& entry) { return sees_operator(entry.first); });
    if (found != kComparisons.end()) {
      take();
      comparison->operations.push_back(found->second);
    } else if (skip_name("in")) {
      comparison->operations.push_back(Operation::kIn);
    } else if (sees_name("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
      take();
      take();
      comparison->operations.push_back(Operation::kNotIn);
    } else {
      break;
    }
    comparison->parts.push_back(parse_sum());
  }
  if (comparison->operations.empty()) return std::move(comparison->parts.front());
  return finish(std::move(comparison));
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (sees_operator("+") || sees_operator("-")) {
    const Operation operation = take().text == "+" ? Operation::kAdd : Operation::kSubtract;
    left = binary(operation, std::move(left), parse_concat());
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  ExpressionPtr concat = node(ExpressionKind::kConcat, now().at);
  concat->parts.push_back(parse_product());
  while (skip_operator("~")) concat->parts.push_back(parse_product());
  if (concat->parts.size() == 1) return std::move(concat->parts.front());
  return finish(std::move(concat));
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  for (;;) {
    Operation operation = Operation::kMultiply;
    if (sees_operator("/")) {
      operation = Operation::kDivide;
    } else if (sees_operator("//")) {
      operation = Operation::kFloorDivide;
    } else if (sees_operator("%")) {
      operation = Operation::kModulo;
    } else if (!sees_operator("*")) {
      return left;
    }
    take();
    left = binary(operation, std::move(left), parse_power());
  }
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (skip_operator("**")) left = binary(Operation::kPower, std::move(left), parse_unary());
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  ExpressionPtr expression;
  if (sees_operator("-") || sees_operator("+")) {
    const Level level(*this);
    expression = node(ExpressionKind::kUnary, now().at);
    expression->operation = take().text == "-" ? Operation::kNegate : Operation::kPlus;
    expression->parts.push_back(parse_unary(false));
    expression = finish(std::move(expression));
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return with_filters ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

ExpressionPtr Parser::parse_primary(bool with_attributes) {
  ExpressionPtr expression = node(ExpressionKind::kConstant, now().at);
  if (sees(TokenKind::kName)) {
    expression->name = take().text;
    const std::string& name = expression->name;
    if (name == "none" || name == "None") {
      expression->value = None{};
    } else if (is_constant_name(name)) {
      expression->value = Value(name == "true" || name == "True");
    } else if (with_attributes && skip_operator(".")) {
      expression->kind = ExpressionKind::kAttributeOf;
      expression->value = Value::text(take_name());
    } else {
      expression->kind = ExpressionKind::kName;
    }
    return expression;
  }
  if (sees(TokenKind::kString)) {
    std::string text;
    while (sees(TokenKind::kString)) text += take().text;
    expression->value = Value::text(text);
    return expression;
  }
  if (sees(TokenKind::kInteger) || sees(TokenKind::kFloat)) {
    expression->value = take().number;
    return expression;
  }
  if (skip_operator("(")) {
    expression = parse_tuple({.parenthesized = true});
    expect_operator(")");
    return expression;
  }
  if (sees_operator("[")) return parse_list();
  if (sees_operator("{")) return parse_dict();
  refuse("unexpected " + describe());
}

ExpressionPtr Parser::parse_list() {
  ExpressionPtr list = node(ExpressionKind::kList, take().at);
  while (!sees_operator("]")) {
    if (!list->parts.empty()) expect_operator(",");
    if (sees_operator("]")) break;
    list->parts.push_back(parse_expression());
  }
  take();
  return finish(std::move(list));
}

ExpressionPtr Parser::parse_dict() {
  ExpressionPtr dict = node(ExpressionKind::kDict, take().at);
  while (!sees_operator("}")) {
    if (!dict->parts.empty()) expect_operator(",");
    if (sees_operator("}")) break;
    dict->parts.push_back(parse_expression());
    expect_operator(":");
    dict->parts.push_back(parse_expression());
  }
  take();
  return finish(std::move(dict));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr expression) {
  for (;;) {
    if (sees_operator(".")) {
      expression = parse_attribute(std::move(expression));
    } else if (sees_operator("[")) {
      expression = parse_subscript(std::move(expression));
    } else if (sees_operator("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr expression) {
  for (;;) {
    if (sees_operator("|")) {
      expression = parse_filter(std::move(expression), false);
    } else if (sees_name("is")) {
      expression = parse_test(std::move(expression));
    } else if (sees_operator("(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExpressionPtr Parser::parse_attribute(ExpressionPtr of) {
  ExpressionPtr expression = node(ExpressionKind::kAttribute, take().at);
  expression->parts.push_back(std::move(of));
  if (sees(TokenKind::kInteger)) {
    expression->kind = ExpressionKind::kItem;
    ExpressionPtr key = node(ExpressionKind::kConstant, now().at);
    key->value = take().number;
    expression->parts.push_back(std::move(key));
  } else {
    expression->name = take_name();
  }
  return finish(std::move(expression));
}

// One part of a subscript. True for a slice; else the expression is bounds[0].
bool Parser::parse_subscript_part(ExpressionPtr (&bounds)[3]) {
  if (!sees_operator(":")) bounds[0] = parse_expression();
  if (!skip_operator(":")) return false;
  const auto absent = [this] {
    return sees_operator(":") || sees_operator("]") || sees_operator(",");
  };
  if (!absent()) bounds[1] = parse_expression();
  if (skip_operator(":") && !sees_operator("]") && !sees_operator(",")) {
    bounds[2] = parse_expression();
  }
  return true;
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr of) {
  ExpressionPtr expression = node(ExpressionKind::kItem, take().at);
  expression->parts.push_back(std::move(of));
  ExpressionPtr keys = node(ExpressionKind::kTuple, now().at);
  bool comma = false;
  while (!sees_operator("]")) {
    if (comma) expect_operator(",");
    ExpressionPtr bounds[3];
    if (parse_subscript_part(bounds)) {
      if (comma || !sees_operator("]")) refuse("a slice among several keys");
      take();
      expression->kind = ExpressionKind::kSlice;
      for (ExpressionPtr& bound : bounds) expression->parts.push_back(std::move(bound));
      return finish(std::move(expression));
    }
    keys->parts.push_back(std::move(bounds[0]));
    comma = true;
  }
  take();
  expression->parts.push_back(keys->parts.size() == 1 ? std::move(keys->parts.front())
                                                      : finish(std::move(keys)));
  return finish(std::move(expression));
}

void Parser::parse_argument(CallArguments& arguments, const Position& at) {
  const auto ensure = [&](bool allowed) {
    at_ = at;
    if (!allowed) refuse("arguments in an order that a call cannot have");
  };
  const bool dynamic = arguments.more_positional != nullptr || arguments.more_keywords != nullptr;
  if (sees_operator("*")) {
    ensure(!dynamic);
    take();
    arguments.more_positional = parse_expression();
  } else if (sees_operator("**")) {
    ensure(arguments.more_keywords == nullptr);
    take();
    arguments.more_keywords = parse_expression();
  } else if (sees(TokenKind::kName) && ahead().kind == TokenKind::kOperator &&
             ahead().text == "=") {
    ensure(arguments.more_keywords == nullptr);
    std::string name = take().text;
    take();
    for (const auto& keyword : arguments.keywords) {
      if (keyword.first == name) refuse("the argument '" + name + "' twice");
    }
    arguments.keywords.emplace_back(std::move(name), parse_expression());
  } else {
    ensure(!dynamic && arguments.keywords.empty());
    arguments.positional.push_back(parse_expression());
  }
}

std::unique_ptr<CallArguments> Parser::parse_arguments() {
  auto arguments = std::make_unique<CallArguments>();
  const Position at = now().at;
  expect_operator("(");
  bool comma = false;
  while (!sees_operator(")")) {
    if (comma) {
      expect_operator(",");
      if (sees_operator(")")) break;
    }
    parse_argument(*arguments, at);
    comma = true;
  }
  take();
  return arguments;
}

ExpressionPtr Parser::parse_call(ExpressionPtr callee) {
  ExpressionPtr call = node(ExpressionKind::kCall, now().at);
  call->parts.push_back(std::move(callee));
  call->arguments = parse_arguments();
  return finish(std::move(call));
}

std::string Parser::parse_dotted_name() {
  std::string name = take_name();
  while (skip_operator(".")) name += "." + take_name();
  return name;
}

// A chain of filters over `operand`; null: over the text of a block.
ExpressionPtr Parser::parse_filter(ExpressionPtr operand, bool first_is_inline) {
  while (sees_operator("|") || first_is_inline) {
    if (!first_is_inline) take();
    first_is_inline = false;
    ExpressionPtr filter = node(ExpressionKind::kFilter, now().at);
    filter->name = parse_dotted_name();
    filter->parts.push_back(std::move(operand));
    filter->arguments = sees_operator("(") ? parse_arguments() : std::make_unique<CallArguments>();
    operand = finish(std::move(filter));
  }
  return operand;
}

ExpressionPtr Parser::parse_test(ExpressionPtr operand) {
  ExpressionPtr test = node(ExpressionKind::kTest, take().at);
  const bool negated = skip_name("not");
  test->name = parse_dotted_name();
  test->parts.push_back(std::move(operand));
  test->arguments = std::make_unique<CallArguments>();
  const bool starts_value = sees(TokenKind::kName) || sees(TokenKind::kString) ||
                            sees(TokenKind::kInteger) || sees(TokenKind::kFloat) ||
                            sees_operator("[") || sees_operator("{");
  if (sees_operator("(")) {
    test->arguments = parse_arguments();
  } else if (starts_value && !sees_any_name({"else", "or", "and"})) {
    if (sees_name("is")) refuse("tests cannot be chained with 'is'");
    const Level level(*this);
    test->arguments->positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  if (!negated) return test;
  ExpressionPtr expression = node(ExpressionKind::kUnary, test->at);
  expression->operation = Operation::kNot;
  expression->parts.push_back(std::move(test));
  return finish(std::move(expression));
}

}  // namespace moepack::jinja
