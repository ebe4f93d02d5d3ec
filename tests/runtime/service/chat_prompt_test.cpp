// How a request becomes the prompt of the model that is being served.
#include "runtime/service/chat_prompt.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_models.h"

namespace moepack::chat_prompt_test {
namespace {

constexpr const char* kSampled =
    "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"b\": 2,\"a\":1}}\n</tool_call>";

// Its comment names Kimi's marker, so it is taken for Kimi's; its calls are those of Hermes.
constexpr const char* kMistaken =
    "{# <|tool_calls_section_begin|> #}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

ChatRequest request_with(ToolCall call) {
  ChatRequest request;
  std::vector<ChatMessage>& messages = request.conversation.messages;
  messages.resize(3);
  messages[0].content = "add";
  messages[1].role = ChatRole::kAssistant;
  messages[1].calls.push_back(std::move(call));
  messages[2].role = ChatRole::kTool;
  messages[2].tool_call_id = messages[1].calls[0].id;
  messages[2].content = "3";
  ToolSpec tool;
  tool.name = "add";
  tool.parameters = OrderedJson::parse(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})");
  request.conversation.tools.push_back(std::move(tool));
  return request;
}

// What the service's own choice of a format is for: --tool-parser.
TEST(ChatPrompt, SampledCallsAreFoundByTheFormatThatIsGiven) {
  const test::TempDir dir;
  const std::filesystem::path file = dir.path() / "mistaken.jinja";
  std::ofstream(file) << kMistaken;
  ASSERT_OK_AND_ASSIGN(const Tokenizer tokenizer,
                       Tokenizer::load(test::demo_mlx_model() / "tokenizer.json"));
  ASSERT_OK_AND_ASSIGN(const ChatTemplate chat,
                       ChatTemplate::load(test::demo_mlx_model(), tokenizer, file));
  ASSERT_EQ(chat.facts().format, ToolFormat::kKimi);
  CallMemory calls(10, 1000);
  ChatRequest request = request_with({.id = "id", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
  const std::span<const ChatMessage> messages = request.conversation.messages;
  calls.remember(call_key(conversation_scope(messages.first(1)), "id"), {.text = kSampled});
  const auto text_of = [&](ToolFormat format) {
    SampledTexts texts(1000);
    const PromptRoom room(tokenizer, 4096);
    auto made = make_chat_prompt(chat, format, tokenizer, request, calls, texts, room);
    EXPECT_TRUE(std::holds_alternative<ChatPrompt>(made));
    const auto* prompt = std::get_if<ChatPrompt>(&made);
    return prompt == nullptr ? std::string() : prompt->text.text;
  };
  EXPECT_NE(text_of(ToolFormat::kHermes).find(kSampled), std::string::npos)
      << text_of(ToolFormat::kHermes);
  EXPECT_EQ(text_of(chat.facts().format).find(kSampled), std::string::npos);
  request.options.reuses_states = false;
  EXPECT_EQ(text_of(ToolFormat::kHermes).find(kSampled), std::string::npos)
      << "taken from what was kept";
}

}  // namespace
}  // namespace moepack::chat_prompt_test
