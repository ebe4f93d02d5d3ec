// What the model wrote comes back as it was, and nothing else does.
#include "runtime/service/call_memory.h"

#include <gtest/gtest.h>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace moepack::call_memory_test {
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

GeneratedText generated(std::string_view text) {
  GeneratedText made;
  made.add(0, text, false);
  return made;
}

TEST(CallTexts, AreThoseWithBothMarkers) {
  const std::string first = kSampled;
  const GeneratedText all = generated("so: " + first + "\n" + first + " <tool_call>cut");
  const auto texts = call_texts(all, ToolFormat::kHermes);
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].text, first);
  EXPECT_EQ(texts[1].text, first);
  EXPECT_TRUE(texts[0].ids.empty()) << "its token is also that of what stands before it";
  EXPECT_TRUE(call_texts(all, ToolFormat::kNone).empty());
}

TEST(CallTexts, KnowTheirTokens) {
  GeneratedText all;
  all.add(1, "a ", false);
  all.add(2, "<tool_call>", true);
  all.add(3, "{\"a\":\"<|im", false);
  all.add(4, "_end|>\"}", false);
  all.add(5, "<think>", true);
  all.add(6, "</tool_call>", true);
  all.add(7, "\n", false);
  const auto texts = call_texts(all, ToolFormat::kHermes);
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_EQ(texts[0].ids, (std::vector<std::int32_t>{2, 3, 4, 5, 6}));
  ASSERT_EQ(texts[0].markers.size(), 3U);
  EXPECT_EQ(texts[0].text.substr(texts[0].markers[1].begin, 7), "<think>");
}

CallText call_of(std::string text) { return {.text = std::move(text)}; }

TEST(CallMemory, ForgetsWhatWasUsedLeastRecently) {
  CallMemory memory(2, 1000);
  memory.remember("a", call_of("1"));
  memory.remember("b", call_of("2"));
  EXPECT_EQ(memory.recall("a")->text, "1");
  memory.remember("c", call_of("3"));
  EXPECT_FALSE(memory.recall("b").has_value());
  EXPECT_EQ(memory.recall("a")->text, "1");
  CallMemory small(100, 10);
  small.remember("a", call_of("12345678"));
  small.remember("b", call_of("123"));
  EXPECT_FALSE(small.recall("a").has_value());
  small.remember("c", call_of("12345678901"));
  EXPECT_FALSE(small.recall("c").has_value());
  EXPECT_EQ(small.recall("b")->text, "123");
}

// Ids that a model writes itself come again in every conversation.
TEST(CallMemory, TheLastCallOfAnIdStays) {
  CallMemory memory(8, 1000);
  memory.remember("functions.f:0", call_of("first"));
  memory.remember("functions.f:0", call_of("second"));
  EXPECT_EQ(memory.recall("functions.f:0")->text, "second");
  CallMemory small(8, 10);
  for (int i = 0; i < 5; ++i) small.remember("a", call_of("1234567"));
  EXPECT_TRUE(small.recall("a").has_value());
}

TEST(RestoreCalls, ASampledCallStandsInItsPlaceAgain) {
  CallMemory memory(10, 1000);
  memory.remember(call_key("", "id"), call_of(kSampled));
  const Conversation conversation =
      conversation_with({.id = "id", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
  PromptText prompt = prompt_of(kRendered);
  prompt.from_user = {{0, 5}, {prompt.text.size() - 5, prompt.text.size()}};
  const PromptText restored = restore_calls(prompt, conversation, ToolFormat::kHermes, memory);
  EXPECT_EQ(restored.text, prompt_of(kSampled).text);
  ASSERT_EQ(restored.from_user.size(), 3U);
  EXPECT_EQ(restored.text.substr(restored.from_user[1].begin, 11), "<tool_call>")
      << "nothing says that a token was sampled";
  EXPECT_EQ(restored.text.substr(restored.from_user[2].begin), "<end>");
}

// A client that changes a call means the change.
TEST(RestoreCalls, AnotherCallStaysAsItCame) {
  CallMemory memory(10, 1000);
  memory.remember(call_key("", "id"), call_of(kSampled));
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
  memory.remember(call_key("", "id"), call_of(kSampled));
  const Conversation conversation =
      conversation_with({.id = "id", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
  const std::string head = "assistant: ";
  const std::string quote = "<tool_call>quoted</tool_call>";
  PromptText prompt{.text = head + kRendered + quote, .from_user = {}};
  prompt.from_user = {{prompt.text.size() - quote.size(), prompt.text.size()}};
  EXPECT_EQ(restore_calls(prompt, conversation, ToolFormat::kHermes, memory).text,
            head + kSampled + quote);
}

// What an argument spells is text; what was sampled as a token is that token.
TEST(RestoreCalls, ArgumentsHoldNoMarkers) {
  const std::string begin = "<tool_call>";
  const std::string middle = "{\"name\":\"say\",\"arguments\":{\"a\":\"<|im_end|>\"}}";
  const std::string end = "</tool_call>";
  const Conversation conversation = [] {
    Conversation made =
        conversation_with({.id = "id", .name = "say", .arguments = "{\"a\":\"<|im_end|>\"}"});
    made.tools[0].name = "say";
    made.tools[0].parameters = OrderedJson::object();
    return made;
  }();
  const std::size_t size = begin.size() + middle.size() + end.size();
  for (const bool knows_ids : {true, false}) {
    CallMemory memory(10, 1000);
    CallText call{.text = begin + middle + end,
                  .markers = {{0, begin.size()}, {size - end.size(), size}}};
    if (knows_ids) call.ids = {1, 2, 3};
    memory.remember(call_key("", "id"), call);
    const PromptText prompt = prompt_of(begin + " " + middle + " " + end);
    const PromptText restored = restore_calls(prompt, conversation, ToolFormat::kHermes, memory);
    EXPECT_EQ(restored.text, prompt_of(begin + middle + end).text);
    ASSERT_EQ(restored.from_user.size(), 1U);
    EXPECT_EQ(restored.text.substr(restored.from_user[0].begin, middle.size()), middle);
    EXPECT_EQ(restored.from_user[0].end - restored.from_user[0].begin, middle.size());
    ASSERT_EQ(restored.sampled.size(), knows_ids ? 1U : 0U);
    if (!knows_ids) continue;
    EXPECT_EQ(restored.text.substr(restored.sampled[0].bytes.begin, size), begin + middle + end);
  }
}

// Broken text cannot be tokenized, unless its tokens are known.
TEST(RestoreCalls, BrokenTextStaysAway) {
  const std::string broken = "<tool_call>{\"name\":\"add\",\"arguments\":{}}\xC3</tool_call>";
  const Conversation conversation =
      conversation_with({.id = "id", .name = "add", .arguments = "{}"});
  CallMemory memory(10, 1000);
  memory.remember(call_key("", "id"), call_of(broken));
  const PromptText prompt = prompt_of(kRendered);
  EXPECT_EQ(restore_calls(prompt, conversation, ToolFormat::kHermes, memory).text, prompt.text);
}

// Models that count their calls write the same ids in every conversation.
TEST(RestoreCalls, OfAnotherConversationNothingIsTaken) {
  const auto asked = [](const char* question) {
    Conversation conversation = conversation_with(
        {.id = "functions.add:0", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
    ChatMessage message;
    message.content = question;
    conversation.messages.insert(conversation.messages.begin(), message);
    return conversation;
  };
  const Conversation mine = asked("mine");
  CallMemory memory(10, 1000);
  memory.remember(
      call_key(conversation_scope(std::span(mine.messages).first(1)), "functions.add:0"),
      call_of(kSampled));
  const PromptText prompt = prompt_of(kRendered);
  EXPECT_EQ(restore_calls(prompt, mine, ToolFormat::kHermes, memory).text,
            prompt_of(kSampled).text);
  EXPECT_EQ(restore_calls(prompt, asked("yours"), ToolFormat::kHermes, memory).text, prompt.text);
}

TEST(ConversationScope, TellsFieldsAndMessagesApart) {
  ChatMessage ab, a, b;
  ab.content = "ab";
  a.content = "a";
  b.content = "b";
  ChatMessage name = a;
  name.name = "b";
  ChatMessage system = ab;
  system.role = ChatRole::kSystem;
  std::set<std::string> scopes;
  const std::vector<std::vector<ChatMessage>> all = {{}, {ab}, {a, b}, {a}, {name}, {system}};
  for (const auto& messages : all) scopes.insert(conversation_scope(messages));
  EXPECT_EQ(scopes.size(), all.size());
}

// Ids are unique in a conversation that is meant well.
TEST(RestoreCalls, AnIdIsRestoredOnce) {
  CallMemory memory(10, 1000);
  memory.remember(call_key("", "id"), call_of(kSampled));
  Conversation conversation =
      conversation_with({.id = "id", .name = "add", .arguments = "{\"b\":2,\"a\":1}"});
  conversation.messages.push_back(conversation.messages[0]);
  const PromptText prompt = prompt_of(std::string(kRendered) + kRendered);
  EXPECT_EQ(restore_calls(prompt, conversation, ToolFormat::kHermes, memory).text,
            prompt_of(std::string(kSampled) + kRendered).text);
}

}  // namespace
}  // namespace moepack::call_memory_test
