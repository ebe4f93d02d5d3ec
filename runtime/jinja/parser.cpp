#include "runtime/jinja/parser.h"

#include <algorithm>

namespace moepack::jinja {

Parser::Level::Level(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > parser_.limits_.nesting) {
    --parser_.nesting_;
    fail("nested deeper than " + std::to_string(parser_.limits_.nesting) + " levels",
         ErrorKind::kLimit);
  }
}

const Token& Parser::take() {
  const Token& token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  at_ = now().at;
  return token;
}

bool Parser::sees_operator(std::string_view op) const {
  return now().kind == TokenKind::kOperator && now().text == op;
}

bool Parser::sees_name(std::string_view name) const {
  return now().kind == TokenKind::kName && now().text == name;
}

bool Parser::sees_any_name(Words names) const {
  return std::any_of(names.begin(), names.end(),
                     [this](std::string_view name) { return sees_name(name); });
}

bool Parser::skip_operator(std::string_view op) {
  if (!sees_operator(op)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!sees_name(name)) return false;
  take();
  return true;
}

std::string Parser::describe() const {
  switch (now().kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    default:
      return "'" + now().text + "'";
  }
}

void Parser::refuse(std::string message) { fail(std::move(message), ErrorKind::kSyntax); }

void Parser::expect(TokenKind kind, std::string_view what) {
  if (!sees(kind)) refuse("expected " + std::string(what) + ", got " + describe());
  take();
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) refuse("expected '" + std::string(op) + "', got " + describe());
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) refuse("expected '" + std::string(name) + "', got " + describe());
}

std::string Parser::take_name() {
  if (!sees(TokenKind::kName)) refuse("expected a name, got " + describe());
  return take().text;
}

Body Parser::parse_template() {
  Body body;
  parse_body(body, {});
  return body;
}

StatementPtr Parser::make(StatementKind kind) const {
  auto statement = std::make_unique<Statement>();
  statement->kind = kind;
  statement->at = now().at;
  return statement;
}

// Up to one of the tags `ends`, whose name is the next token then, or the end of the template.
void Parser::parse_body(Body& body, Words ends) {
  const Level level(*this);
  while (!sees(TokenKind::kEnd)) {
    if (sees(TokenKind::kData)) {
      StatementPtr text = make(StatementKind::kText);
      text->text = make_text(take().text);
      body.push_back(std::move(text));
    } else if (sees(TokenKind::kVariableBegin)) {
      take();
      StatementPtr print = make(StatementKind::kPrint);
      print->expressions.push_back(parse_tuple({}));
      expect(TokenKind::kVariableEnd, "'}}'");
      body.push_back(std::move(print));
    } else {
      take();
      if (sees_any_name(ends)) return;
      body.push_back(parse_statement());
      expect(TokenKind::kBlockEnd, "'%}'");
    }
  }
}

void Parser::parse_block_body(Body& body, Words ends, bool drop_end) {
  skip_operator(":");
  expect(TokenKind::kBlockEnd, "'%}'");
  parse_body(body, ends);
  if (sees(TokenKind::kEnd)) {
    refuse("the template ends within a block that '" + std::string(*ends.begin()) +
           "' should close");
  }
  if (drop_end) take();
}

StatementPtr Parser::parse_statement() {
  if (!sees(TokenKind::kName)) refuse("expected the name of a tag, got " + describe());
  const std::string& tag = now().text;
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call_block();
  if (tag == "generation") return parse_generation();
  if (tag == "filter") return parse_filter_block();
  if (tag == "with") return parse_with();
  if (tag == "print") return parse_print();
  if (tag == "break" || tag == "continue") return parse_loop_control();
  for (const char* known : {"block", "extends", "include", "import", "from", "autoescape"}) {
    if (tag == known) fail("the tag '" + tag + "' is not supported", ErrorKind::kUnsupported);
  }
  refuse("unknown tag '" + tag + "'");
}

StatementPtr Parser::parse_for() {
  StatementPtr loop = make(StatementKind::kFor);
  take();
  loop->target = parse_target(false, {"in"});
  expect_name("in");
  loop->value = parse_tuple({.conditional = false, .ends = {"recursive"}});
  if (skip_name("if")) loop->test = parse_expression();
  loop->recursive = skip_name("recursive");
  ++loops_;
  parse_block_body(loop->body, {"endfor", "else"}, false);
  --loops_;
  const bool has_else = sees_name("else");
  take();
  if (has_else) {
    const int loops = loops_;
    if (loop->recursive) loops_ = 0;
    parse_block_body(loop->otherwise, {"endfor"}, true);
    loops_ = loops;
  }
  return loop;
}

StatementPtr Parser::parse_if() {
  StatementPtr choice = make(StatementKind::kIf);
  take();
  for (;;) {
    Branch branch;
    branch.at = now().at;
    branch.test = parse_tuple({.conditional = false});
    parse_block_body(branch.body, {"elif", "else", "endif"}, false);
    choice->branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      parse_block_body(choice->otherwise, {"endif"}, true);
    } else {
      take();
    }
    return choice;
  }
}

StatementPtr Parser::parse_set() {
  StatementPtr set = make(StatementKind::kSet);
  take();
  set->target = parse_target(true, {});
  if (skip_operator("=")) {
    set->value = parse_tuple({});
    return set;
  }
  set->kind = StatementKind::kSetBlock;
  set->value = parse_filter(nullptr, false);
  parse_block_body(set->body, {"endset"}, true);
  return set;
}

void Parser::parse_parameters(MacroBody& macro) {
  expect_operator("(");
  while (!sees_operator(")")) {
    if (!macro.parameters.empty()) expect_operator(",");
    ExpressionPtr parameter = parse_name_target();
    for (const ExpressionPtr& other : macro.parameters) {
      if (other->name == parameter->name) refuse("two parameters '" + other->name + "'");
    }
    macro.parameters.push_back(std::move(parameter));
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      refuse("a parameter without a default follows one with");
    }
  }
  take();
}

void Parser::parse_macro_body(MacroBody& macro, std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  parse_block_body(macro.body, {end}, true);
  loops_ = loops;
}

StatementPtr Parser::parse_macro() {
  StatementPtr statement = make(StatementKind::kMacro);
  take();
  statement->macro = std::make_unique<MacroBody>();
  statement->macro->name = parse_name_target()->name;
  parse_parameters(*statement->macro);
  parse_macro_body(*statement->macro, "endmacro");
  return statement;
}

StatementPtr Parser::parse_call_block() {
  StatementPtr statement = make(StatementKind::kCallBlock);
  take();
  statement->macro = std::make_unique<MacroBody>();
  if (sees_operator("(")) parse_parameters(*statement->macro);
  statement->value = parse_expression();
  if (statement->value->kind != ExpressionKind::kCall) refuse("expected a call");
  parse_macro_body(*statement->macro, "endcall");
  return statement;
}

StatementPtr Parser::parse_generation() {
  StatementPtr statement = make(StatementKind::kGeneration);
  take();
  statement->macro = std::make_unique<MacroBody>();
  parse_macro_body(*statement->macro, "endgeneration");
  return statement;
}

StatementPtr Parser::parse_filter_block() {
  StatementPtr statement = make(StatementKind::kFilterBlock);
  take();
  statement->value = parse_filter(nullptr, true);
  parse_block_body(statement->body, {"endfilter"}, true);
  return statement;
}

StatementPtr Parser::parse_with() {
  StatementPtr statement = make(StatementKind::kWith);
  take();
  while (!sees(TokenKind::kBlockEnd)) {
    if (!statement->expressions.empty()) expect_operator(",");
    statement->expressions.push_back(parse_target(false, {}));
    expect_operator("=");
    statement->expressions.push_back(parse_expression());
  }
  parse_block_body(statement->body, {"endwith"}, true);
  return statement;
}

StatementPtr Parser::parse_print() {
  StatementPtr statement = make(StatementKind::kPrint);
  take();
  while (!sees(TokenKind::kBlockEnd)) {
    if (!statement->expressions.empty()) expect_operator(",");
    statement->expressions.push_back(parse_expression());
  }
  return statement;
}

StatementPtr Parser::parse_loop_control() {
  const bool is_break = sees_name("break");
  StatementPtr statement = make(is_break ? StatementKind::kBreak : StatementKind::kContinue);
  if (loops_ == 0) refuse("'" + now().text + "' outside of a loop");
  take();
  return statement;
}

Tree parse(std::string_view source, const Limits& limits, Position& at) {
  if (source.size() > limits.source_bytes) {
    fail("longer than " + std::to_string(limits.source_bytes) + " bytes", ErrorKind::kLimit);
  }
  std::vector<Token> tokens = tokenize(source, at);
  at = tokens.front().at;
  Tree tree;
  tree.body = Parser(std::move(tokens), limits, at).parse_template();
  return tree;
}

}  // namespace moepack::jinja
