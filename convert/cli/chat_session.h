// A conversation at the terminal: messages, commands that begin with "/", answers, calls of tools.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "convert/cli/chat_answer.h"
#include "convert/cli/chat_input.h"
#include "convert/cli/chat_tools.h"
#include "convert/cli/chat_view.h"
#include "runtime/service/answer_service.h"

namespace moepack::cli {

struct ChatSessionOptions {
  ChatRequest request;  // what every answer is asked with; its conversation is where it begins
  ToolCommands commands;
  bool shows_thoughts = false;
};

// One thread at a time; what it is given outlives it.
class ChatSession {
 public:
  ChatSession(AnswerService& service, ChatInput& input, ChatView& view, ChatSessionOptions options);

  // Until /bye, Ctrl-D or Ctrl-C twice.
  void converse();

  // One message, behind the files that were attached, answered; calls of tools are made where they
  // are allowed. An error where the service refuses it or fails: nothing has changed then.
  Status say(std::string text);
  const ChatAnswer& last() const { return last_; }

 private:
  using Command = Status (ChatSession::*)(std::string_view words);
  struct NamedCommand {
    const char* name;
    Command run;
    const char* help;
  };
  static const std::vector<NamedCommand>& commands();

  bool take_line(const std::string& text, const std::optional<std::string>& edited);
  Status send(std::string text);
  // In place of the last message and all after it, which come back on an error.
  Status send_instead(std::string text);
  Status run_command(std::string_view line);
  Status answer();
  Status answer_calls();
  std::vector<ChatMessage>& messages() { return options_.request.conversation.messages; }
  // Where the last message of the user is; nothing: there is none.
  std::optional<std::size_t> last_turn();

  Status clear(std::string_view words);
  Status set_system(std::string_view words);
  Status regenerate(std::string_view words);
  Status edit(std::string_view words);
  Status undo(std::string_view words);
  Status save(std::string_view words);
  Status load(std::string_view words);
  Status think(std::string_view words);
  Status set(std::string_view words);
  Status show_stats(std::string_view words);
  Status count_tokens(std::string_view words);
  Status attach_file(std::string_view words);
  Status use_tools(std::string_view words);
  Status help(std::string_view words);
  Status bye(std::string_view words);

  AnswerService& service_;
  ChatInput& input_;
  ChatView& view_;
  ChatSessionOptions options_;
  ToolPermission permission_;
  ChatAnswer last_;
  std::string attached_;  // texts of files for the next message
  // /edit: what the last message says, with which the next line begins. The message stays until
  // that line is sent.
  std::optional<std::string> edited_;
  bool is_ending_ = false;
};

}  // namespace moepack::cli
