// Recursive descent over the tokens of a template; parser.cpp has statements,
// parser_expressions.cpp expressions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/ast.h"
#include "runtime/jinja/lexer.h"

namespace moepack::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const Limits& limits, Position& at)
      : tokens_(std::move(tokens)), limits_(limits), at_(at) {}
  Body parse_template();

 private:
  using Words = std::initializer_list<std::string_view>;
  // One level of nesting in the source.
  class Level {
   public:
    explicit Level(Parser& parser);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  const Token& now() const { return tokens_[next_]; }
  const Token& ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  const Token& take();
  bool sees(TokenKind kind) const { return now().kind == kind; }
  bool sees_operator(std::string_view op) const;
  bool sees_name(std::string_view name) const;
  bool sees_any_name(Words names) const;
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect(TokenKind kind, std::string_view what);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  std::string take_name();
  [[noreturn]] void refuse(std::string message);
  std::string describe() const;

  // Statements.
  void parse_body(Body& body, Words ends);
  void parse_block_body(Body& body, Words ends, bool drop_end);
  StatementPtr parse_statement();
  StatementPtr make(StatementKind kind) const;
  StatementPtr parse_for();
  StatementPtr parse_if();
  StatementPtr parse_set();
  StatementPtr parse_macro();
  StatementPtr parse_call_block();
  StatementPtr parse_generation();
  StatementPtr parse_filter_block();
  StatementPtr parse_with();
  StatementPtr parse_print();
  StatementPtr parse_loop_control();
  void parse_parameters(MacroBody& macro);
  void parse_macro_body(MacroBody& macro, std::string_view end);

  // Expressions.
  ExpressionPtr node(ExpressionKind kind, Position at) const { return node_of(kind, at); }
  static ExpressionPtr node_of(ExpressionKind kind, Position at);
  ExpressionPtr finish(ExpressionPtr expression) const;  // checks the depth
  ExpressionPtr binary(Operation operation, ExpressionPtr left, ExpressionPtr right) const;
  ExpressionPtr parse_target(bool with_attributes, Words ends);
  ExpressionPtr parse_name_target();
  void check_target(const Expression& target);
  struct TupleRules {
    bool simple = false;      // names and literals only
    bool conditional = true;  // "x if y" is taken
    bool parenthesized = false;
    bool attributes = false;  // name.attribute is a target
    Words ends = {};          // names that end it
  };
  ExpressionPtr parse_tuple(const TupleRules& rules);
  bool at_tuple_end(Words ends) const;
  ExpressionPtr parse_expression(bool conditional = true);
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary(bool with_attributes = false);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr expression);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr expression);
  ExpressionPtr parse_attribute(ExpressionPtr of);
  ExpressionPtr parse_subscript(ExpressionPtr of);
  bool parse_subscript_part(ExpressionPtr (&bounds)[3]);
  ExpressionPtr parse_call(ExpressionPtr callee);
  std::unique_ptr<CallArguments> parse_arguments();
  void parse_argument(CallArguments& arguments, const Position& at);
  ExpressionPtr parse_filter(ExpressionPtr operand, bool first_is_inline);
  ExpressionPtr parse_test(ExpressionPtr operand);
  std::string parse_dotted_name();

  std::vector<Token> tokens_;
  std::size_t next_ = 0;
  const Limits& limits_;
  Position& at_;
  std::uint64_t nesting_ = 0;
  int loops_ = 0;  // around the statement, within its macro
};

}  // namespace moepack::jinja
