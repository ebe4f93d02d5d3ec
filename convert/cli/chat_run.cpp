#include "convert/cli/chat_run.h"

#include <unistd.h>

#include <iostream>
#include <iterator>
#include <utility>

#include "convert/cli/chat_session.h"
#include "convert/cli/chat_text.h"

namespace moepack::cli {
namespace {

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

Result<ChatSessionOptions> session_options(const ChatRunOptions& options) {
  ChatSessionOptions session;
  session.request = options.request;
  session.shows_thoughts = options.shows_thoughts;
  MOE_ASSIGN_OR_RETURN(session.commands,
                       ToolCommands::parse(options.allow_tools, options.tool_seconds));
  return session;
}

// The prompt, then stdin where something was put there.
Result<std::string> whole_message(const ChatRunOptions& options) {
  std::string text = options.prompt;
  if (is_terminal(STDIN_FILENO)) return text;
  const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
  MOE_RETURN_IF_ERROR(check_text(input, "stdin"));
  if (!text.empty() && !input.empty()) text += "\n\n";
  return text + input;
}

Result<bool> answer_once(AnswerService& service, const ChatRunOptions& options) {
  ChatRequest request = options.request;
  ChatMessage message;
  MOE_ASSIGN_OR_RETURN(message.content, whole_message(options));
  if (trimmed_line(message.content).empty()) {
    return invalid_argument("there is no message", "give one with -p or on stdin");
  }
  request.conversation.messages.push_back(std::move(message));
  ChatView view(std::cout, false);
  MOE_ASSIGN_OR_RETURN(const ChatAnswer answer, take_answer(service, request, view));
  if (answer.end.reason == AnswerEndReason::kError) {
    return answer.end.status.is_ok() ? invalid_argument("the answer failed") : answer.end.status;
  }
  if (!answer.message.calls.empty()) {
    return invalid_argument("the model calls " + printable(answer.message.calls[0].name, 80),
                            "tools are run in a conversation alone; leave -p and pipes out");
  }
  return answer.end.reason == AnswerEndReason::kCancelled;
}

}  // namespace

Status prepare_chat(ChatRunOptions& options) {
  Conversation& conversation = options.request.conversation;
  MOE_RETURN_IF_ERROR(check_text(options.prompt, "--prompt"));
  MOE_RETURN_IF_ERROR(check_text(options.system, "--system"));
  if (!options.system.empty()) {
    ChatMessage system;
    system.role = ChatRole::kSystem;
    system.content = options.system;
    conversation.messages.push_back(std::move(system));
  }
  if (!options.tools_file.empty()) {
    MOE_ASSIGN_OR_RETURN(conversation.tools, read_tools_file(options.tools_file));
  }
  MOE_ASSIGN_OR_RETURN(const ToolCommands commands,
                       ToolCommands::parse(options.allow_tools, options.tool_seconds));
  return options.tools_file.empty() ? Status::ok() : commands.check_names(conversation.tools);
}

Result<bool> run_chat(AnswerService& service, const ChatRunOptions& options) {
  if (!options.prompt.empty() || !is_terminal(STDIN_FILENO)) return answer_once(service, options);
  MOE_ASSIGN_OR_RETURN(ChatSessionOptions session, session_options(options));
  const auto history = options.keeps_history ? chat_history_file() : std::filesystem::path();
  const auto input = make_terminal_input(history);
  ChatView view(std::cout, is_terminal(STDOUT_FILENO));
  view.note(service.model().id + ", " + std::to_string(service.model().context) +
            " tokens of context; /help names the commands");
  ChatSession(service, *input, view, std::move(session)).converse();
  return false;
}

}  // namespace moepack::cli
