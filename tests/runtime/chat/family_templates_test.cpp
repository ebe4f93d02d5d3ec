// Every family's form of chat template (tests/golden/templates, small ones of our own): the format
// of calls that it tells, and what it writes of a call is what the parser of that format reads.
#include <gtest/gtest.h>

#include <optional>

#include "runtime/chat/chat_template.h"
#include "runtime/chat/output_parser.h"
#include "tests/support/parsed_text.h"
#include "tests/support/status_matchers.h"

namespace moepack::family_templates_test {
namespace {

const std::filesystem::path kGolden = MOEPACK_SOURCE_DIR "/tests/golden";

ToolSpec forecast() {
  ToolSpec tool;
  tool.name = "forecast";
  tool.parameters = OrderedJson::parse(
      R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
          "units": {"type": "array"}}})");
  tool.wire = {{"type", "function"},
               {"function", {{"name", tool.name}, {"parameters", tool.parameters}}}};
  return tool;
}

ChatMessage message(ChatRole role, std::string content) {
  ChatMessage out;
  out.role = role;
  out.content = std::move(content);
  return out;
}

constexpr const char* kArguments = R"({"city":"S\u00e3o \"P\"","days":3,"units":["C","mm"]})";

Conversation conversation(bool with_call) {
  Conversation out;
  out.tools.push_back(forecast());
  out.messages.push_back(message(ChatRole::kUser, "How will it be?"));
  if (!with_call) return out;
  out.messages.push_back(message(ChatRole::kAssistant, ""));
  out.messages.back().calls.push_back({"functions.forecast:0", "forecast", kArguments});
  out.messages.push_back(message(ChatRole::kTool, "mild"));
  out.messages.back().tool_call_id = "functions.forecast:0";
  out.messages.back().name = "forecast";
  return out;
}

class FamilyTemplate : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::load(kGolden / "demo-moe-mlx-4bit" / "tokenizer.json");
    ASSERT_OK(tokenizer);
    tokenizer_.emplace(std::move(tokenizer).value());
    auto loaded = ChatTemplate::load(kGolden / "demo-moe-mlx-4bit", *tokenizer_,
                                     kGolden / "templates" / (std::string(GetParam()) + ".jinja"));
    ASSERT_OK(loaded);
    template_.emplace(std::move(loaded).value());
  }
  std::string render(const Conversation& asked) const {
    const auto prompt = template_->render(asked);
    EXPECT_OK(prompt);
    return prompt.is_ok() ? prompt.value().text : std::string();
  }

  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
};

TEST_P(FamilyTemplate, TellsItsFormatAndTheParserReadsItsCalls) {
  const ToolFormat format = template_->facts().format;
  EXPECT_EQ(tool_format_name(format), GetParam());
  EXPECT_TRUE(template_->facts().renders_tools);
  // What the model would have written: what stands behind the generation prompt.
  const std::string prompt = render(conversation(false));
  const std::string whole = render(conversation(true));
  ASSERT_TRUE(whole.starts_with(prompt)) << whole;
  const std::string written = whole.substr(prompt.size());
  for (const std::size_t step : {std::size_t{1}, std::size_t{7}, written.size()}) {
    const auto parser =
        make_output_parser({.format = format, .parses_calls = true, .tools = {forecast()}});
    test::JoinedOutputs outputs;
    for (std::size_t at = 0; at < written.size(); at += step) {
      outputs.add(parser->push({.bytes = std::string_view(written).substr(at, step)}));
    }
    outputs.add(parser->finish(false));
    ASSERT_EQ(outputs.calls().size(), 1U) << written;
    const test::ParsedCall& call = outputs.calls().front();
    EXPECT_EQ(call.name, "forecast");
    EXPECT_TRUE(call.is_ended);
    EXPECT_EQ(OrderedJson::parse(call.arguments), OrderedJson::parse(kArguments)) << written;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTemplate,
                         ::testing::Values("hermes", "qwen-xml", "harmony", "deepseek", "dsml",
                                           "glm", "kimi", "minimax"));

}  // namespace
}  // namespace moepack::family_templates_test
