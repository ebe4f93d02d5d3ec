// A template's source, cut into tokens as jinja2 cuts it with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/jinja/error.h"
#include "runtime/jinja/value.h"

namespace moepack::jinja {

enum class TokenKind : std::uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of names and operators as written; of data and strings what they stand for
  Value number;      // of kInteger and kFloat
  Position at;
};

// Throws Error (kSyntax, or kLimit for numbers beyond Integer). `at` is where it stood then.
std::vector<Token> tokenize(std::string_view source, Position& at);

}  // namespace moepack::jinja
