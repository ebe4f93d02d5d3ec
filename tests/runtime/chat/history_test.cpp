// The rules that fit a conversation to a template.
#include "runtime/chat/history.h"

#include <string>

#include <gtest/gtest.h>

namespace moepack::history_test {
namespace {

ChatMessage said(ChatRole role, const std::string& content) {
  ChatMessage message;
  message.role = role;
  message.content = content;
  return message;
}

ChatMessage result_of(const std::string& id, const std::string& content) {
  ChatMessage message = said(ChatRole::kTool, content);
  message.tool_call_id = id;
  return message;
}

ChatMessage calling(const std::vector<ToolCall>& calls) {
  ChatMessage message = said(ChatRole::kAssistant, "");
  message.calls = calls;
  return message;
}

TEST(History, LateSystemMessagesBecomeUsersInPlace) {
  Conversation given;
  given.messages = {said(ChatRole::kSystem, "first"), said(ChatRole::kUser, "q"),
                    said(ChatRole::kSystem, "late")};
  const Conversation made = late_systems_as_users(given);
  EXPECT_EQ(made.messages[0].role, ChatRole::kSystem);
  EXPECT_EQ(made.messages[2].role, ChatRole::kUser);
  EXPECT_EQ(made.messages[2].content, "<system-reminder>\nlate\n</system-reminder>");
}

TEST(History, AUserIsAddedBehindTheSystemMessage) {
  Conversation given;
  given.messages = {said(ChatRole::kSystem, "s"), said(ChatRole::kAssistant, "a")};
  Conversation made = with_a_user(given);
  ASSERT_EQ(made.messages.size(), 3U);
  EXPECT_EQ(made.messages[1].role, ChatRole::kUser);
  EXPECT_EQ(with_a_user(made).messages.size(), 3U);
}

TEST(History, ResultsComeInTheOrderOfTheirCalls) {
  Conversation given;
  given.messages = {said(ChatRole::kUser, "q"),
                    calling({{"a", "f", "{}"}, {"b", "g", "{}"}, {"c", "g", "{}"}}),
                    result_of("c", "3"),
                    result_of("lost", "4"),
                    said(ChatRole::kSystem, "late"),
                    result_of("a", "1"),
                    result_of("", "5"),
                    result_of("b", "2"),
                    result_of("a", "1 again"),
                    said(ChatRole::kUser, "and"),
                    result_of("a", "of another turn"),
                    calling({{"b", "f", "{}"}, {"a", "f", "{}"}}),
                    result_of("a", "7"),
                    result_of("b", "6")};
  const Conversation made = apply_history_rules(given, {});
  ASSERT_EQ(made.messages.size(), given.messages.size());
  std::vector<std::string> contents;
  for (const ChatMessage& message : made.messages) contents.push_back(message.content);
  EXPECT_EQ(contents, (std::vector<std::string>{"q", "", "1", "4", "late", "1 again", "5", "2", "3",
                                                "and", "of another turn", "", "6", "7"}));
  EXPECT_EQ(made.messages[5].tool_call_id, "a");
  EXPECT_EQ(made.messages[8].tool_call_id, "c");
}

TEST(History, KimiIdsCountTheCallsOfTheConversation) {
  Conversation given;
  given.messages = {said(ChatRole::kUser, "q"),
                    calling({{"toolu_1", "f", "{}"}, {"toolu_2", "g", "{}"}}),
                    result_of("toolu_2", "2"),
                    result_of("toolu_1", "1"),
                    calling({{"functions_f_0", "f", "{}"}}),
                    result_of("lost", "3")};
  const Conversation made = with_kimi_ids(given);
  EXPECT_EQ(made.messages[1].calls[0].id, "functions.f:0");
  EXPECT_EQ(made.messages[1].calls[1].id, "functions.g:1");
  EXPECT_EQ(made.messages[2].tool_call_id, "functions.g:1");
  EXPECT_EQ(made.messages[3].tool_call_id, "functions.f:0");
  EXPECT_EQ(made.messages[4].calls[0].id, "functions.f:2");
  EXPECT_EQ(made.messages[5].tool_call_id, "functions.f:2");
}

TEST(History, SeveralCallsBecomeOneEachWithItsResult) {
  Conversation given;
  ChatMessage calls = calling({{"a", "f", "{}"}, {"b", "g", "{}"}});
  calls.reasoning = "thought";
  given.messages = {said(ChatRole::kUser, "q"), calls, result_of("b", "2"), result_of("a", "1"),
                    said(ChatRole::kUser, "next")};
  const Conversation made = with_one_call_each(given);
  ASSERT_EQ(made.messages.size(), 6U);
  EXPECT_EQ(made.messages[1].calls[0].name, "f");
  EXPECT_EQ(made.messages[1].reasoning, "thought");
  EXPECT_EQ(made.messages[2].content, "1");
  EXPECT_EQ(made.messages[3].calls[0].name, "g");
  EXPECT_EQ(made.messages[3].reasoning, "");
  EXPECT_EQ(made.messages[4].content, "2");
  EXPECT_EQ(made.messages[5].content, "next");
}

TEST(History, ArgumentsAreObjects) {
  EXPECT_EQ(arguments_object("").dump(), "{}");
  EXPECT_EQ(arguments_object(" \n").dump(), "{}");
  EXPECT_EQ(arguments_object(R"({"b":1,"a":[null]})").dump(), R"({"b":1,"a":[null]})");
  EXPECT_EQ(arguments_object(R"({"a":1,"b":2,"a":3})").dump(), R"({"a":3,"b":2})")
      << "of a key that a model wrote twice the last counts";
  EXPECT_EQ(arguments_object("[1]").dump(), R"({"arguments":"[1]"})");
  EXPECT_EQ(arguments_object("{broken").dump(), R"({"arguments":"{broken"})");
  const std::string deep = "{\"a\":" + std::string(3000, '[') + std::string(3000, ']') + "}";
  EXPECT_EQ(arguments_object(deep), OrderedJson({{"arguments", deep}}));
}

TEST(History, MessagesHaveTheFormThatTemplatesRead) {
  Conversation given;
  given.messages = {said(ChatRole::kUser, "q"), calling({{"id", "f", "{\"x\":1}"}})};
  given.messages[1].reasoning = "t";
  EXPECT_EQ(template_messages(given).dump(),
            R"([{"role":"user","content":"q"},{"role":"assistant","content":"",)"
            R"("reasoning_content":"t","thinking":"t","tool_calls":[{"id":"id","type":"function",)"
            R"("function":{"name":"f","arguments":{"x":1}}}]}])");
  EXPECT_TRUE(template_tools(given).is_null());
}

}  // namespace
}  // namespace moepack::history_test
