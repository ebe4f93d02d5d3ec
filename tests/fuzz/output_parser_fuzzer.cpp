// The first two bytes choose format and options, the rest is generated text. Marker texts of the
// format are added tokens where the options say so.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/output_parser.h"
#include "tests/fuzz/require.h"
#include "tests/support/parsed_text.h"

namespace {

moepack::OutputParserOptions fuzz_parser_options(std::uint8_t format, std::uint8_t flags) {
  moepack::OutputParserOptions options;
  options.format = static_cast<moepack::ToolFormat>(format % 9);
  options.begins_in_reasoning = flags & 1;
  options.parses_reasoning = !(flags & 2);
  options.parses_calls = !(flags & 4);
  if (!(flags & 8)) {
    const auto schema = moepack::OrderedJson::parse(
        R"({"properties":{"a":{"type":"string"},"b":{"type":"integer"},"c":{"type":"object"},
            "d":{"type":["string","null"]},"e":{"type":"boolean"}}})");
    options.tools.push_back({"f", "", schema, {}});
    options.tools.push_back({"g0", "", {}, {}});
  }
  if (flags & 16) {
    options.added_tokens = {"<think>",
                            "</think>",
                            "<tool_call>",
                            "</tool_call>",
                            "<|channel|>",
                            "<|message|>",
                            "<|call|>",
                            "<|end|>",
                            "<|start|>",
                            "<｜tool▁calls▁begin｜>",
                            "<｜tool▁sep｜>",
                            "｜DSML｜",
                            "<arg_key>",
                            "<arg_value>",
                            "<|tool_call_begin|>",
                            "<minimax:tool_call>"};
  }
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  const auto options = fuzz_parser_options(data[0], data[1]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto pieces = moepack::test::cut_at_added(text, options.added_tokens);
  moepack::test::require(moepack::test::find_parser_fault(options, pieces, size < 120).empty());
  return 0;
}
