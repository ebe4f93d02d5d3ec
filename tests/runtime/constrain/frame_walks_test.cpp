// Whatever a constraint lets a model write, the parser of its family reads as calls: random walks
// through the frames of all families, with markers as tokens and as text.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/chat/output_parser.h"
#include "tests/runtime/constrain/constrain_support.h"
#include "tests/support/status_matchers.h"

namespace moepack::frame_walks_test {
namespace {

using test::kEndId;
using test::make_vocabulary;

struct WalkFamily {
  ToolFormat format;
  std::vector<std::string> markers;
};

std::vector<WalkFamily> walk_families() {
  return {
      {ToolFormat::kHermes, {"<tool_call>", "</tool_call>", "<think>", "</think>"}},
      {ToolFormat::kQwenXml, {"<tool_call>", "</tool_call>", "<think>", "</think>"}},
      {ToolFormat::kGlm,
       {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
      {ToolFormat::kKimi,
       {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
        "<|tool_call_end|>", "<|tool_call_argument_begin|>"}},
      {ToolFormat::kDeepseek,
       {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"}},
      {ToolFormat::kDsml, {"｜DSML｜"}},
      {ToolFormat::kMinimax, {"<minimax:tool_call>", "</minimax:tool_call>"}},
      {ToolFormat::kHarmony,
       {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>"}}};
}

ToolSpec walk_tool(const std::string& name, const std::string& parameters) {
  ToolSpec spec;
  spec.name = name;
  spec.parameters = OrderedJson::parse(parameters);
  return spec;
}

std::vector<ToolSpec> walk_tools() {
  return {walk_tool("say", R"({"type":"object","properties":{"text":{"type":"string"},
              "times":{"type":"integer","minimum":1,"maximum":14},"mood":{"enum":["glad","sad"]},
              "loud":{"type":"boolean"},"to":{"type":"array","items":{"type":"string"}},
              "more":{"type":"object","properties":{"x":{"type":"number"}}}},
              "required":["text"]})"),
          walk_tool("stop", R"({"type":"object","properties":{}})")};
}

struct WalkedText {
  std::string text;
  std::vector<std::pair<std::string, bool>> pieces;  // bytes, and whether they are an added token
  bool has_ended = false;
};

// Draws allowed tokens at random; the constraint is told how many are left, and comes to an end.
WalkedText walk_frame(TokenFilter& filter, const TokenBytes& tokens, std::mt19937& random,
                      std::size_t limit) {
  WalkedText walked;
  std::vector<float> logits(tokens.size());
  for (std::size_t left = limit; left > 0; --left) {
    filter.set_remaining(left);
    std::fill(logits.begin(), logits.end(), 0.0F);
    filter.mask(logits);
    std::vector<std::int32_t> allowed;
    for (std::size_t id = 0; id < logits.size(); ++id) {
      if (!std::isinf(logits[id])) allowed.push_back(static_cast<std::int32_t>(id));
    }
    if (allowed.empty()) return walked;
    const std::int32_t id = allowed[random() % allowed.size()];
    filter.accept(id);
    walked.has_ended = id == kEndId;
    if (walked.has_ended) return walked;
    const std::string bytes(tokens.bytes(id));
    walked.text += bytes;
    walked.pieces.emplace_back(bytes, tokens.kind(id) == TokenBytes::Kind::kMarker);
  }
  return walked;
}

struct ReadCalls {
  std::vector<ToolCall> calls;
  std::size_t ended = 0;
  std::string content;
};

ReadCalls read_walk(const WalkFamily& family, const std::vector<std::string>& markers,
                    const WalkedText& walked) {
  OutputParserOptions options;
  options.format = family.format;
  options.parses_calls = true;
  options.tools = walk_tools();
  options.added_tokens = markers;
  const auto parser = make_output_parser(std::move(options));
  ReadCalls read;
  const auto take = [&](std::vector<ParsedOutput> outputs) {
    for (const ParsedOutput& output : outputs) {
      if (const auto* begin = std::get_if<ParsedCallBegin>(&output)) {
        read.calls.push_back({.id = begin->id, .name = begin->name});
      } else if (const auto* part = std::get_if<ParsedCallArguments>(&output)) {
        read.calls.back().arguments += part->fragment;
      } else if (std::holds_alternative<ParsedCallEnd>(output)) {
        ++read.ended;
      } else if (const auto* content = std::get_if<ParsedContent>(&output)) {
        read.content += content->text;
      }
    }
  };
  for (const auto& [bytes, is_added] : walked.pieces) {
    take(parser->push({.bytes = bytes, .is_added = is_added}));
  }
  take(parser->finish(false));
  return read;
}

void expect_valid(const ReadCalls& read, const std::string& text) {
  EXPECT_EQ(read.ended, read.calls.size()) << text;
  EXPECT_EQ(read.content.find_first_not_of(" \n\r\t"), std::string::npos)
      << text << "\ncontent: " << read.content;
  for (const ToolCall& call : read.calls) {
    const OrderedJson arguments = OrderedJson::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << text << "\narguments: " << call.arguments;
    const auto tools = walk_tools();
    const ToolSpec& tool = call.name == "say" ? tools[0] : tools[1];
    EXPECT_EQ(call.name, tool.name) << text;
    EXPECT_TRUE(test::is_valid_json(tool.parameters, tool.parameters, arguments))
        << text << "\narguments: " << call.arguments;
  }
}

// Pieces of which frames and values are made, so that walks meet them.
std::vector<std::string> walk_pieces() {
  std::vector<std::string> pieces = test::usual_pieces();
  pieces.insert(pieces.end(), {"</parameter>\n", "</function>", "\n</", ">\n<", "<parameter=",
                               "</invoke>", "text", "say", "true", "<tool", "_call>", "｜"});
  return pieces;
}

TEST(FrameWalks, AWalkIsOneCall) {
  std::mt19937 random(11);
  for (const WalkFamily& family : walk_families()) {
    for (const auto& markers : {family.markers, std::vector<std::string>{}}) {
      const auto tokens = make_vocabulary(walk_pieces(), markers);
      ToolGrammarOptions options;
      options.format = family.format;
      options.tools = walk_tools();
      options.is_required = true;
      options.is_parallel = false;
      ASSERT_OK_AND_ASSIGN(const auto grammar, make_tool_grammar(options, nullptr));
      std::size_t ended = 0;
      for (int i = 0; i < 40; ++i) {
        const auto filter = make_constraint(grammar, tokens, "");
        const WalkedText walked = walk_frame(*filter, *tokens, random, 400);
        if (!walked.has_ended) continue;
        ++ended;
        const ReadCalls read = read_walk(family, markers, walked);
        EXPECT_EQ(read.calls.size(), 1U) << static_cast<int>(family.format)
                                         << (markers.empty() ? " as text: " : ": ") << walked.text;
        expect_valid(read, walked.text);
      }
      EXPECT_GT(ended, 30U) << static_cast<int>(family.format);
    }
  }
}

TEST(FrameWalks, SeveralCallsAreSeveral) {
  std::mt19937 random(12);
  for (const WalkFamily& family : walk_families()) {
    const auto tokens = make_vocabulary(walk_pieces(), family.markers);
    ToolGrammarOptions options;
    options.format = family.format;
    options.tools = walk_tools();
    options.is_required = true;
    ASSERT_OK_AND_ASSIGN(const auto grammar, make_tool_grammar(options, nullptr));
    std::size_t ended = 0, calls = 0;
    for (int i = 0; i < 30; ++i) {
      const auto filter = make_constraint(grammar, tokens, "");
      const WalkedText walked = walk_frame(*filter, *tokens, random, 600);
      if (!walked.has_ended) continue;
      ++ended;
      const ReadCalls read = read_walk(family, family.markers, walked);
      EXPECT_GE(read.calls.size(), 1U) << walked.text;
      calls += read.calls.size();
      expect_valid(read, walked.text);
    }
    EXPECT_GT(ended, 20U) << static_cast<int>(family.format);
    EXPECT_GE(calls, ended);
  }
}

}  // namespace
}  // namespace moepack::frame_walks_test
