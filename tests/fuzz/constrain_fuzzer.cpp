// A schema or the parameters of a tool from outside, then bytes as tokens: every token that is
// allowed is followed by another, or the text may end.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/constrain/constraint.h"
#include "runtime/constrain/token_bytes.h"
#include "tests/fuzz/require.h"

namespace {

using moepack::OrderedJson;
using moepack::TokenBytes;
using moepack::test::require;

std::shared_ptr<const TokenBytes> vocabulary() {
  static const std::shared_ptr<const TokenBytes> kTokens = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
    std::vector<TokenBytes::Token> tokens;
    for (std::size_t i = 0; i < 256; ++i) tokens.push_back({std::string_view(bytes).substr(i, 1)});
    for (const char* text : {"<|end|>", "<tool_call>", "</tool_call>"})
      tokens.push_back({text, true});
    for (const char* text : {"{\"", "\":", "\",", "null", "\\u00", "<function=f>"})
      tokens.push_back({text});
    const std::int32_t ends[] = {256};
    return std::make_shared<const TokenBytes>(tokens, ends);
  }();
  return kTokens;
}

void walk(const std::shared_ptr<const moepack::Grammar>& grammar, std::string_view choices) {
  constexpr std::size_t kMaxSteps = 64;
  const bool may_think = !choices.empty() && static_cast<unsigned char>(choices[0]) >= 128;
  const auto filter = may_think ? make_constraint(grammar, vocabulary(), "</t>", "<t>")
                                : make_constraint(grammar, vocabulary(), "");
  for (const char choice : choices.substr(0, kMaxSteps)) {
    if (!filter->is_active()) {
      filter->accept(static_cast<unsigned char>(choice));
      continue;
    }
    std::vector<float> logits(vocabulary()->size());
    filter->mask(logits);
    std::vector<std::int32_t> allowed;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto id = static_cast<std::int32_t>(i);
      require(filter->allows(id) == !std::isinf(logits[i]));
      if (!std::isinf(logits[i])) allowed.push_back(id);
    }
    require(!allowed.empty());
    filter->accept(allowed[static_cast<unsigned char>(choice) % allowed.size()]);
  }
}

}  // namespace

// The first byte chooses what is made of the JSON before the first NUL; the rest chooses tokens.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMaxInput = 4096;
  if (size < 2 || size > kMaxInput) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t end = std::min(input.find('\0'), input.size());
  OrderedJson schema = OrderedJson::parse(input.substr(0, end), nullptr, false);
  if (schema.is_discarded()) return 0;
  const std::string_view choices = end < input.size() ? input.substr(end + 1) : "";
  std::vector<std::string> warnings;
  if (data[0] % 16 < 8) {
    const auto grammar = moepack::make_schema_grammar(schema, &warnings);
    moepack::test::check_message(grammar.status());
    if (grammar.is_ok()) walk(grammar.value(), choices);
    return 0;
  }
  moepack::ToolGrammarOptions options;
  options.format = static_cast<moepack::ToolFormat>(data[0] % 16 - 7);
  options.is_required = data[0] % 32 < 16;
  options.is_parallel = data[0] % 64 < 32;
  moepack::ToolSpec tool;
  tool.name = "f";
  tool.parameters = std::move(schema);
  options.tools.push_back(std::move(tool));
  const auto grammar = moepack::make_tool_grammar(options, &warnings);
  moepack::test::check_message(grammar.status());
  if (grammar.is_ok() && grammar.value() != nullptr) walk(grammar.value(), choices);
  return 0;
}
