// Parts of `moepack chat` that need no terminal.
#include <gtest/gtest.h>

#include "convert/cli/chat_file.h"
#include "convert/cli/chat_settings.h"
#include "convert/cli/chat_text.h"
#include "convert/cli/chat_tools.h"
#include "tests/support/reader_drill.h"

namespace moepack::test::chat_parts_test {
namespace {

TEST(ChatText, NothingSteersTheTerminal) {
  EXPECT_EQ(cli::terminal_text("a\x1b[31m\r\n\tb\x7f\xc2\x9b"
                               "31mc\xe2\x80\xae"),
            "a[31m\n\tb31mc");
  EXPECT_EQ(cli::terminal_text("\xc3\xa9\xf0\x9f\x98\x80"), "\xc3\xa9\xf0\x9f\x98\x80");
}

TEST(ChatText, WordsAreCountedOverBorders) {
  cli::WordCount words;
  for (const char* piece : {"o", "ne tw", "o ", " three\n"}) words.add(piece);
  EXPECT_EQ(words.words(), 3u);
}

TEST(ChatTools, CommandsAreSplitWithoutAShell) {
  const auto words = cli::split_command(R"( run 'a  b' "c'd"e  $HOME '' )");
  ASSERT_TRUE(words.is_ok());
  EXPECT_EQ(words.value(), (std::vector<std::string>{"run", "a  b", "c'de", "$HOME", ""}));
  EXPECT_FALSE(cli::split_command("run 'a").is_ok());
  EXPECT_FALSE(cli::split_command("  ").is_ok());
}

// By ids, and without them by places; what is answered stays as it is.
TEST(ChatTools, OpenCallsAreAnsweredOnce) {
  const auto message = [](ChatRole role, const std::string& content, std::vector<ToolCall> calls,
                          const std::string& id) {
    ChatMessage made;
    made.role = role;
    made.content = content;
    made.calls = std::move(calls);
    made.tool_call_id = id;
    return made;
  };
  std::vector<ChatMessage> messages = {
      message(ChatRole::kUser, "q", {}, ""),
      message(ChatRole::kAssistant, "", {{"1", "f", "{}"}, {"2", "g", "{}"}}, ""),
      message(ChatRole::kTool, "two", {}, "2"),
      message(ChatRole::kAssistant, "", {{"", "f", "{}"}, {"", "g", "{}"}}, ""),
      message(ChatRole::kTool, "one", {}, ""),
      message(ChatRole::kAssistant, "", {{"3", "f", "{}"}}, "")};
  EXPECT_EQ(cli::answer_open_calls(messages, "no"), 3U);
  std::vector<std::string> told;
  for (const ChatMessage& one : messages) {
    if (one.role == ChatRole::kTool) told.push_back(one.tool_call_id + one.name + one.content);
  }
  EXPECT_EQ(told, (std::vector<std::string>{"2two", "1fno", "one", "gno", "3fno"}));
  EXPECT_EQ(messages.size(), 9U);
  EXPECT_EQ(cli::answer_open_calls(messages, "no"), 0U);
}

TEST(ChatFile, DamagedFilesAreRefused) {
  const std::string text =
      R"({"format":"moepack-chat","version":1,"messages":[{"role":"assistant","content":"c",)"
      R"("reasoning":"r","tool_calls":[{"id":"1","name":"f","arguments":"{}"}]}]})";
  drill_truncation(
      text, [](std::string_view part) { return cli::parse_chat(part, "chat.json").status(); });
  for (const char* wrong :
       {"[]", R"({"format":"moepack-chat","version":2,"messages":[]})",
        R"({"format":"moepack-chat","version":1,"messages":[{"role":"god","content":""}]})",
        R"({"format":"moepack-chat","version":1,"messages":[{"role":"user","content":1}]})",
        R"({"format":"moepack-chat","version":1,"messages":[{"role":"user"}]})"}) {
    EXPECT_FALSE(cli::parse_chat(wrong, "chat.json").is_ok()) << wrong;
  }
}

TEST(ChatSettings, ValuesHaveRanges) {
  ChatRequest request;
  EXPECT_TRUE(cli::change_setting(request, "top_p", "0.5").is_ok());
  EXPECT_FLOAT_EQ(request.options.sampling.top_p, 0.5F);
  EXPECT_TRUE(cli::change_setting(request, "max_tokens", "10").is_ok());
  EXPECT_EQ(request.options.max_tokens, 10u);
  EXPECT_TRUE(cli::change_setting(request, "max_tokens", "0").is_ok());
  EXPECT_FALSE(request.options.max_tokens.has_value());
  for (const char* wrong : {"", "nan", "-1", "2", "1x"}) {
    EXPECT_FALSE(cli::change_setting(request, "top_p", wrong).is_ok()) << wrong;
  }
  EXPECT_FALSE(cli::change_setting(request, "warmth", "1").is_ok());
}

}  // namespace
}  // namespace moepack::test::chat_parts_test
