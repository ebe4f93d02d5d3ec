// The parsers of all families: what vectors mean, and properties of every text.
#include "runtime/chat/output_parser.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/runtime/chat/parser_vectors.h"

namespace moepack::test::output_parser_test {
namespace {

TEST(OutputParser, VectorsMeanWhatTheyShould) {
  for (const ParserVectors& family : all_parser_vectors()) {
    for (const ParserVector& vector : family.vectors) {
      SCOPED_TRACE(std::string(tool_format_name(family.format)) + ": " + vector.name);
      const OutputParserOptions options = vector_options(family, vector);
      const auto pieces = cut_at_added(vector.text, family.added_tokens);
      const JoinedOutputs outputs = parse_whole(options, pieces, vector.is_cut);
      EXPECT_EQ(outputs.reasoning(), vector.reasoning);
      EXPECT_EQ(outputs.content(), vector.content);
      ASSERT_EQ(outputs.calls().size(), vector.calls.size()) << outputs.text();
      for (std::size_t i = 0; i < vector.calls.size(); ++i) {
        EXPECT_EQ(outputs.calls()[i].id, vector.calls[i].id);
        EXPECT_EQ(outputs.calls()[i].name, vector.calls[i].name);
        EXPECT_EQ(outputs.calls()[i].arguments, vector.calls[i].arguments);
        EXPECT_EQ(outputs.calls()[i].is_ended, vector.calls[i].is_ended);
      }
    }
  }
}

TEST(OutputParser, PrefixesAndChunksOfVectorsAgree) {
  for (const ParserVectors& family : all_parser_vectors()) {
    for (const ParserVector& vector : family.vectors) {
      SCOPED_TRACE(std::string(tool_format_name(family.format)) + ": " + vector.name);
      OutputParserOptions options = vector_options(family, vector);
      EXPECT_EQ(find_parser_fault(options, cut_at_added(vector.text, family.added_tokens), true),
                "");
      options.added_tokens.clear();
      EXPECT_EQ(find_parser_fault(options, cut_at_added(vector.text, {}), true), "");
    }
  }
}

// Cuts, doubles, swaps and writes over stretches of a text.
std::string mutated(std::string text, std::string_view other, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t size = below(std::min<std::size_t>(24, text.size() - at + 1));
    switch (below(5)) {
      case 0:
        text.erase(at, size);
        break;
      case 1:
        text.insert(at, text.substr(at, size));
        break;
      case 2:
        text.insert(at, other.substr(below(other.size()), 24));
        break;
      case 3:
        text.insert(at, 1, static_cast<char>(random()));
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

TEST(OutputParser, MutatedVectorsLoseNoTextAndNeverFail) {
  std::mt19937 random(1);
  for (const ParserVectors& family : all_parser_vectors()) {
    for (const ParserVector& vector : family.vectors) {
      SCOPED_TRACE(std::string(tool_format_name(family.format)) + ": " + vector.name);
      for (int round = 0; round < 24; ++round) {
        OutputParserOptions options = vector_options(family, vector);
        if (random() % 2) options.added_tokens.clear();
        const std::string& other = family.vectors[random() % family.vectors.size()].text;
        const std::string text = mutated(vector.text, other, random);
        const auto pieces = cut_at_added(text, options.added_tokens);
        ASSERT_EQ(find_parser_fault(options, pieces, round % 8 == 0), "") << text;
      }
    }
  }
}

TEST(OutputParser, ArgumentsOfLongTextsComeAsTheyAreWritten) {
  const ParserVectors family = qwen_xml_vectors();
  const auto parser = make_output_parser(vector_options(family, {}));
  parser->push({"<tool_call>", true});
  std::size_t sent = 0;
  const auto count = [&](std::string_view bytes) {
    for (const ParsedOutput& output : parser->push({bytes, false})) {
      if (const auto* part = std::get_if<ParsedCallArguments>(&output))
        sent += part->fragment.size();
    }
  };
  count("\n<function=write>\n<parameter=text>\n");
  for (int i = 1; i <= 1000; ++i) {
    count("words ");
    ASSERT_GE(sent + 16, static_cast<std::size_t>(i) * 6);
  }
}

TEST(OutputParser, TellsWhetherItStandsInThoughts) {
  OutputParserOptions options;
  options.begins_in_reasoning = true;
  const auto parser = make_output_parser(options);
  EXPECT_TRUE(parser->is_in_reasoning());
  parser->push({"a thought</thi", false});
  EXPECT_TRUE(parser->is_in_reasoning());
  parser->push({"nk>", false});
  EXPECT_FALSE(parser->is_in_reasoning());
}

// Where the markers of messages are tokens, the same letters in plain text are text.
TEST(OutputParser, TellsWhatFramesMessagesAndCalls) {
  OutputParserOptions options;
  options.format = ToolFormat::kHarmony;
  options.added_tokens = {"<|channel|>", "<|message|>", "<|end|>", "<|start|>"};
  const auto parser = make_output_parser(options);
  EXPECT_TRUE(parser->is_in_frame({.bytes = "<|channel|>", .is_added = true}));
  EXPECT_FALSE(parser->is_in_frame({.bytes = "final"})) << "a message without a header";
  (void)parser->push({.bytes = "<|channel|>", .is_added = true});
  EXPECT_TRUE(parser->is_in_frame({.bytes = "final"}));
  (void)parser->push({.bytes = "final"});
  (void)parser->push({.bytes = "<|message|>", .is_added = true});
  EXPECT_FALSE(parser->is_in_frame({.bytes = "final"}));
  EXPECT_FALSE(parser->is_in_frame({.bytes = "<|end|>"}));
  EXPECT_TRUE(parser->is_in_frame({.bytes = "<|end|>", .is_added = true}));
}

TEST(ToolFormat, NamesAreFound) {
  for (int i = 0; i < 9; ++i) {
    const auto format = static_cast<ToolFormat>(i);
    EXPECT_EQ(find_tool_format(tool_format_name(format)), format);
  }
  EXPECT_FALSE(find_tool_format("gpt"));
}

}  // namespace
}  // namespace moepack::test::output_parser_test
