// The commands of a conversation.
#include <iomanip>
#include <sstream>
#include <utility>

#include "convert/cli/chat_file.h"
#include "convert/cli/chat_session.h"
#include "convert/cli/chat_settings.h"
#include "convert/cli/chat_text.h"
#include "convert/cli/token_input.h"
#include "formats/base/elapsed.h"
#include "formats/base/utf8.h"

namespace moepack::cli {
namespace {

constexpr std::size_t kMostAttachedBytes = std::size_t{1} << 20;

Status needs(std::string_view words, const char* what) {
  return words.empty() ? invalid_argument(std::string(what) + " is missing") : Status::ok();
}

bool says_nothing(const ChatMessage& message) {
  return message.content.empty() && message.calls.empty();
}

}  // namespace

const std::vector<ChatSession::NamedCommand>& ChatSession::commands() {
  static const std::vector<NamedCommand> all = {
      {"/clear", &ChatSession::clear, "/clear: forget the conversation"},
      {"/system", &ChatSession::set_system, "/system TEXT: what the model is told first"},
      {"/regen", &ChatSession::regenerate, "/regen: another answer to the last message"},
      {"/edit", &ChatSession::edit, "/edit [TEXT]: change the last message, and answer it anew"},
      {"/undo", &ChatSession::undo, "/undo: forget the last message and its answer"},
      {"/save", &ChatSession::save, "/save FILE: write the conversation"},
      {"/load", &ChatSession::load, "/load FILE: go on with a saved one"},
      {"/think", &ChatSession::think,
       "/think show|hide|on|off: show thoughts or fold them; think or do not"},
      {"/set", &ChatSession::set, "/set [NAME VALUE]: how answers are drawn"},
      {"/stats", &ChatSession::show_stats, "/stats: speed of the last answer, cache, reads"},
      {"/tokens", &ChatSession::count_tokens, "/tokens: length of the conversation"},
      {"/file", &ChatSession::attach_file, "/file PATH: put a file before the next message"},
      {"/tools", &ChatSession::use_tools, "/tools FILE: tools that the model may call"},
      {"/help", &ChatSession::help, "/help: this list"},
      {"/bye", &ChatSession::bye, "/bye: end (so does Ctrl-D)"},
  };
  return all;
}

Status ChatSession::clear(std::string_view) {
  std::vector<ChatMessage> kept;
  if (!messages().empty() && messages().front().role == ChatRole::kSystem) {
    kept.push_back(messages().front());
  }
  messages() = std::move(kept);
  attached_.clear();
  return Status::ok();
}

Status ChatSession::set_system(std::string_view words) {
  MOE_RETURN_IF_ERROR(check_text(words, "the system's text"));
  std::vector<ChatMessage>& all = messages();
  if (!all.empty() && all.front().role == ChatRole::kSystem) all.erase(all.begin());
  if (words.empty()) return Status::ok();
  ChatMessage system;
  system.role = ChatRole::kSystem;
  system.content = words;
  all.insert(all.begin(), std::move(system));
  return Status::ok();
}

Status ChatSession::regenerate(std::string_view) {
  const std::optional<std::size_t> turn = last_turn();
  if (!turn) return invalid_argument("there is no message to answer");
  const std::vector<ChatMessage> kept = messages();
  ++options_.request.options.sampling.seed;
  MOE_RETURN_IF_ERROR(send_instead(kept[*turn].content));
  const bool is_without_answer = last_.end.reason == AnswerEndReason::kCancelled &&
                                 says_nothing(last_.message) && messages().size() == *turn + 2;
  if (!is_without_answer) return Status::ok();
  messages() = kept;
  view_.note("(the answer before it stays)");
  return Status::ok();
}

Status ChatSession::edit(std::string_view words) {
  const std::optional<std::size_t> turn = last_turn();
  if (!turn) return invalid_argument("there is no message to change");
  if (!words.empty()) return send_instead(std::string(words));
  edited_ = messages()[*turn].content;
  return Status::ok();
}

Status ChatSession::undo(std::string_view) {
  const std::optional<std::size_t> turn = last_turn();
  if (!turn) return invalid_argument("there is nothing to undo");
  messages().resize(*turn);
  return Status::ok();
}

Status ChatSession::save(std::string_view words) {
  MOE_RETURN_IF_ERROR(needs(words, "the file"));
  MOE_RETURN_IF_ERROR(save_chat(std::string(words), messages()));
  view_.note(std::to_string(messages().size()) + " messages saved");
  return Status::ok();
}

Status ChatSession::load(std::string_view words) {
  MOE_RETURN_IF_ERROR(needs(words, "the file"));
  MOE_ASSIGN_OR_RETURN(messages(), load_chat(std::string(words)));
  view_.note(std::to_string(messages().size()) + " messages loaded");
  const std::size_t answered = answer_open_calls(messages(), "error: not run");
  if (answered == 0) return Status::ok();
  view_.note("(" + std::to_string(answered) +
             " calls of tools without a result; the model is told that they were not run)");
  return Status::ok();
}

Status ChatSession::think(std::string_view words) {
  if (words == "show" || words == "hide") {
    view_.set_shows_thoughts(words == "show");
  } else if (words == "on" || words == "off") {
    options_.request.thinks = words == "on";
  } else {
    return invalid_argument("/think takes show, hide, on or off");
  }
  return Status::ok();
}

Status ChatSession::set(std::string_view words) {
  if (words.empty()) {
    view_.note(settings_text(options_.request));
    return Status::ok();
  }
  const std::size_t end = std::min(words.find_first_of(" \t"), words.size());
  return change_setting(options_.request, words.substr(0, end), trimmed_line(words.substr(end)));
}

Status ChatSession::show_stats(std::string_view) {
  const AnswerUsage& usage = last_.end.usage;
  const AnswerTimings& times = last_.end.timings;
  const ServiceStats all = service_.stats();
  std::ostringstream out;
  out << std::fixed << std::setprecision(2);
  out << "last answer: " << usage.prompt_tokens << " tokens of prompt, " << usage.cached_tokens
      << " of them kept from before, read at "
      << per_second(times.prompt_tokens, times.prompt_seconds) << " tokens/s; "
      << usage.completion_tokens << " tokens of answer, " << usage.reasoning_tokens
      << " of them thoughts, at " << per_second(times.decode_tokens, times.decode_seconds)
      << " tokens/s";
  const std::uint64_t uses = all.expert_hits + all.expert_misses;
  if (uses > 0) {
    const double gigabytes = static_cast<double>(all.expert_bytes_read) / 1e9;
    out << "\nexperts since the start: "
        << 100.0 * static_cast<double>(all.expert_hits) / static_cast<double>(uses)
        << " % cache hits, " << gigabytes << " GB read";
    if (all.read_seconds > 0) out << ", " << gigabytes / all.read_seconds << " GB/s while reading";
  }
  view_.note(out.str());
  return Status::ok();
}

Status ChatSession::count_tokens(std::string_view) {
  const auto rendered = service_.render(options_.request);
  if (const auto* refusal = std::get_if<Refusal>(&rendered)) {
    return invalid_argument(printable(refusal->message, 1024));
  }
  view_.note(std::to_string(std::get<RenderedPrompt>(rendered).ids.size()) + " of " +
             std::to_string(service_.model().context) + " tokens");
  return Status::ok();
}

Status ChatSession::attach_file(std::string_view words) {
  MOE_RETURN_IF_ERROR(needs(words, "the file"));
  const std::string name(words);
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text(name));
  const Where where{.file = name};
  if (text.size() > kMostAttachedBytes) {
    return unsupported(where, "is larger than 1 MiB", "name a smaller file");
  }
  if (find_invalid_utf8(text) != std::string::npos) {
    return unsupported(where, "is no text in UTF-8", "name a text file");
  }
  attached_ += name + ":\n```\n" + text + (text.ends_with('\n') ? "" : "\n") + "```\n\n";
  view_.note(std::to_string(text.size()) + " bytes go before the next message");
  return Status::ok();
}

Status ChatSession::use_tools(std::string_view words) {
  MOE_RETURN_IF_ERROR(needs(words, "the file"));
  MOE_ASSIGN_OR_RETURN(std::vector<ToolSpec> tools, read_tools_file(std::string(words)));
  options_.request.conversation.tools = std::move(tools);
  view_.note(std::to_string(options_.request.conversation.tools.size()) + " tools");
  return Status::ok();
}

Status ChatSession::help(std::string_view) {
  std::string text;
  for (const NamedCommand& command : commands()) text += std::string(command.help) + "\n";
  text += "\\ at a line's end, or \"\"\" before and after, makes a message of several lines";
  view_.note(text);
  return Status::ok();
}

Status ChatSession::bye(std::string_view) {
  is_ending_ = true;
  return Status::ok();
}

}  // namespace moepack::cli
