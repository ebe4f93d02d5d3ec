#include "convert/cli/chat_session.h"

#include <utility>

#include "convert/cli/chat_text.h"

namespace moepack::cli {
namespace {

// Answers in a row that end with calls: more is a model that goes in circles.
constexpr int kMostToolRounds = 25;

constexpr const char* kStays = "(the message stays as it was)";

std::string end_note(const AnswerEnd& end) {
  switch (end.reason) {
    case AnswerEndReason::kLength:
      return "(stopped: max_tokens)";
    case AnswerEndReason::kContext:
      return "(stopped: the context is full; /clear or /undo)";
    case AnswerEndReason::kCancelled:
      return "(stopped)";
    default:
      return {};
  }
}

// What the model is told of a call in an answer that did not come to its end.
const char* unused_call_text(const AnswerEnd& end) {
  return end.reason == AnswerEndReason::kCancelled
             ? "error: not run: the user stopped the answer"
             : "error: not run: the answer was cut off behind the call";
}

}  // namespace

ChatSession::ChatSession(AnswerService& service, ChatInput& input, ChatView& view,
                         ChatSessionOptions options)
    : service_(service),
      input_(input),
      view_(view),
      options_(std::move(options)),
      permission_([this](const std::string& question) {
        const ChatLine line = input_.read_answer(terminal_text(question));
        return line.kind == ChatLine::Kind::kLine ? line.text : std::string();
      }) {
  view_.set_shows_thoughts(options_.shows_thoughts);
}

void ChatSession::converse() {
  bool was_interrupted = false;
  while (!is_ending_) {
    const std::optional<std::string> edited = std::exchange(edited_, std::nullopt);
    const ChatLine line = read_message(input_, edited.value_or(""));
    if (line.kind == ChatLine::Kind::kEnd) return;
    if (line.kind == ChatLine::Kind::kInterrupt && edited) {
      view_.note(kStays);
    } else if (line.kind == ChatLine::Kind::kInterrupt) {
      if (std::exchange(was_interrupted, true)) return;
      view_.note("(Ctrl-C again ends; so does /bye)");
    } else {
      was_interrupted = false;
      take_line(line.text, edited);
    }
  }
}

bool ChatSession::take_line(const std::string& text, const std::optional<std::string>& edited) {
  const std::string_view words = trimmed_line(text);
  if (words.empty() && edited) view_.note(kStays);
  if (words.empty() && (edited || attached_.empty())) return true;
  // What is left as it was is a message, whatever it looks like.
  const bool is_command =
      words.starts_with('/') && words.find('\n') == std::string_view::npos && text != edited;
  const Status status = is_command ? run_command(words) : edited ? send_instead(text) : say(text);
  if (!status.is_ok()) view_.note("moepack: " + status.message());
  return status.is_ok();
}

Status ChatSession::say(std::string text) {
  std::string attached = std::exchange(attached_, {});
  Status status = send(attached + text);
  if (!status.is_ok()) attached_ = std::move(attached);
  return status;
}

Status ChatSession::send(std::string text) {
  MOE_RETURN_IF_ERROR(check_text(text, "the message"));
  ChatMessage message;
  message.content = std::move(text);
  const std::size_t before = messages().size();
  messages().push_back(std::move(message));
  Status status = answer();
  // What was refused is not part of the conversation.
  if (!status.is_ok()) messages().resize(before);
  return status;
}

Status ChatSession::send_instead(std::string text) {
  const std::optional<std::size_t> turn = last_turn();
  if (!turn) return invalid_argument("there is no message to answer anew", "write one");
  std::vector<ChatMessage> kept = messages();
  messages().resize(*turn);
  Status status = send(std::move(text));
  if (!status.is_ok()) messages() = std::move(kept);
  return status;
}

Status ChatSession::answer() {
  for (int round = 0; round < kMostToolRounds; ++round) {
    MOE_ASSIGN_OR_RETURN(last_, take_answer(service_, options_.request, view_));
    if (last_.end.reason == AnswerEndReason::kError) {
      return last_.end.status.is_ok() ? invalid_argument("the answer failed") : last_.end.status;
    }
    const std::string note = end_note(last_.end);
    if (!note.empty()) view_.note(note);
    messages().push_back(last_.message);
    const bool has_calls = last_.end.reason == AnswerEndReason::kToolCalls ||
                           (last_.end.reason == AnswerEndReason::kStop);
    if (!has_calls) answer_open_calls(messages(), unused_call_text(last_.end));
    if (!has_calls || last_.message.calls.empty()) return Status::ok();
    MOE_RETURN_IF_ERROR(answer_calls());
    ++options_.request.options.sampling.seed;
  }
  view_.note("(stopped: too many calls of tools in a row)");
  return Status::ok();
}

Status ChatSession::answer_calls() {
  const std::vector<ToolCall> calls = last_.message.calls;
  for (const ToolCall& call : calls) {
    ChatMessage result;
    result.role = ChatRole::kTool;
    result.tool_call_id = call.id;
    result.name = call.name;
    view_.note("calls " + call.name + " " + call.arguments);
    if (!options_.commands.has(call.name)) {
      result.content = "error: this tool cannot be used here";
      view_.note("(not run: --allow-tool names no command for it)");
    } else if (!permission_.allows(call)) {
      result.content = "error: the user does not allow this call";
      view_.note("(not run)");
    } else {
      result.content = options_.commands.run(call);
      view_.note(std::to_string(result.content.size()) + " bytes of result");
    }
    messages().push_back(std::move(result));
  }
  return Status::ok();
}

std::optional<std::size_t> ChatSession::last_turn() {
  const std::vector<ChatMessage>& all = messages();
  for (std::size_t i = all.size(); i > 0; --i) {
    if (all[i - 1].role == ChatRole::kUser) return i - 1;
  }
  return std::nullopt;
}

Status ChatSession::run_command(std::string_view line) {
  const std::size_t end = line.find_first_of(" \t");
  const std::string_view name = line.substr(0, end);
  const std::string_view words =
      end == std::string_view::npos ? std::string_view() : trimmed_line(line.substr(end));
  for (const NamedCommand& command : commands()) {
    if (name == command.name) return (this->*command.run)(words);
  }
  return invalid_argument("there is no command " + printable(name, 40), "/help names them");
}

}  // namespace moepack::cli
