// What the model wrote comes back as it was, and nothing else does.
#include "runtime/service/call_memory.h"

#include <gtest/gtest.h>
#include <string>
#include <utility>

namespace moepack {
namespace {

constexpr const char* kSampled =
    "<tool_call>\n{\"name\":\"add\",\"arguments\":{\"b\": 2,\"a\":1}}\n</tool_call>";
constexpr const char* kRendered =
    "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"b\": 2, \"a\": 1}}\n</tool_call>";

Conversation conversation_with(ToolCall call) {
  Conversation conversation;
  ChatMessage message;
  message.role = ChatRole::kAssistant;
  message.calls.push_back(std::move(call));
  conversation.messages.push_back(std::move(message));
  ToolSpec tool;
  tool.name = "add";
  tool.parameters = OrderedJson::parse(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})");
  conversation.tools.push_back(std::move(tool));
  return conversation;
}

PromptText prompt_of(const std::string& call) {
  return {.text = "tools: <tool_call>example</tool_call>\nassistant: " + call + "<end>",
          .from_user = {}};
}

TEST(CallTexts, AreThoseWithBothMarkers) {
  const std::string first = kSampled;
  const auto texts =
      call_texts("so: " + first + "\n" + first + " <tool_call>cut", ToolFormat::kHermes);
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0], first);
  EXPECT_EQ(texts[1], first);
  EXPECT_TRUE(call_texts(first, ToolFormat::kNone).empty());
}

TEST(CallMemory, ForgetsWhatWasUsedLeastRecently) {
  CallMemory memory(2, 1000);
  memory.remember("a", "1");
  memory.remember("b", "2");
  EXPECT_EQ(memory.recall("a"), "1");
  memory.remember("c", "3");
  EXPECT_FALSE(memory.recall("b").has_value());
  EXPECT_EQ(memory.recall("a"), "1");
  CallMemory small(100, 10);
  small.remember("a", "12345678");
  small.remember("b", "123");
  EXPECT_FALSE(small.recall("a").has_value());
  small.remember("c", "12345678901");
  EXPECT_FALSE(small.recall("c").has_value());
  EXPECT_EQ(small.recall("b"), "123");
}

TEST(RestoreCalls, ASampledCallStandsInItsPlaceAgain) {
  CallMemory memory(10, 1000);
  memory.remember("id", kSampled);
  const Conversation conversation =
      conversation_with({.id = "id", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
  PromptText prompt = prompt_of(kRendered);
  prompt.from_user = {{0, 5}, {prompt.text.size() - 5, prompt.text.size()}};
  const PromptText restored = restore_calls(prompt, conversation, ToolFormat::kHermes, memory);
  EXPECT_EQ(restored.text, prompt_of(kSampled).text);
  ASSERT_EQ(restored.from_user.size(), 2U);
  EXPECT_EQ(restored.text.substr(restored.from_user[1].begin), "<end>");
}

// A client that changes a call means the change.
TEST(RestoreCalls, AnotherCallStaysAsItCame) {
  CallMemory memory(10, 1000);
  memory.remember("id", kSampled);
  for (const char* arguments : {"{\"b\":2,\"a\":7}", "{\"b\":2}", "no json"}) {
    const Conversation conversation =
        conversation_with({.id = "id", .name = "add", .arguments = arguments});
    const PromptText prompt = prompt_of(kRendered);
    EXPECT_EQ(restore_calls(prompt, conversation, ToolFormat::kHermes, memory).text, prompt.text);
  }
  const Conversation unknown =
      conversation_with({.id = "other", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
  const PromptText prompt = prompt_of(kRendered);
  EXPECT_EQ(restore_calls(prompt, unknown, ToolFormat::kHermes, memory).text, prompt.text);
}

// What a user quotes is no call.
TEST(RestoreCalls, MarkersInMessagesDoNotCount) {
  CallMemory memory(10, 1000);
  memory.remember("id", kSampled);
  const Conversation conversation =
      conversation_with({.id = "id", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
  const std::string head = "assistant: ";
  const std::string quote = "<tool_call>quoted</tool_call>";
  PromptText prompt{.text = head + kRendered + quote, .from_user = {}};
  prompt.from_user = {{prompt.text.size() - quote.size(), prompt.text.size()}};
  EXPECT_EQ(restore_calls(prompt, conversation, ToolFormat::kHermes, memory).text,
            head + kSampled + quote);
}

}  // namespace
}  // namespace moepack
