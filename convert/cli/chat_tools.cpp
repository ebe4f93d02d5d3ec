#include "convert/cli/chat_tools.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "convert/cli/chat_process.h"
#include "convert/cli/chat_text.h"
#include "convert/cli/token_input.h"
#include "formats/base/json.h"
#include "formats/base/utf8.h"

namespace moepack::cli {
namespace {

constexpr const char* kToolRemedy =
    "write an array of {\"type\": \"function\", \"function\": {\"name\": …, \"parameters\": …}}";

Result<ToolSpec> read_tool(const OrderedJson& json, const Where& where, std::size_t index) {
  const auto fault = [&](const std::string& what) {
    return corrupt(where, "tool " + std::to_string(index) + " " + what, kToolRemedy);
  };
  if (!json.is_object()) return fault("is no object");
  const bool is_wrapped = json.contains("function") && json["function"].is_object();
  const OrderedJson& function = is_wrapped ? json["function"] : json;
  const auto name = function.find("name");
  if (name == function.end() || !name->is_string() || name->get<std::string>().empty()) {
    return fault("has no \"name\"");
  }
  ToolSpec tool;
  tool.name = name->get<std::string>();
  const auto description = function.find("description");
  if (description != function.end() && description->is_string()) {
    tool.description = description->get<std::string>();
  }
  const auto parameters = function.find("parameters");
  if (parameters != function.end()) {
    if (!parameters->is_object()) return fault("has \"parameters\" that are no object");
    tool.parameters = *parameters;
  }
  tool.wire = is_wrapped ? json : OrderedJson{{"type", "function"}, {"function", function}};
  return tool;
}

}  // namespace

Result<std::vector<ToolSpec>> read_tools_file(const std::filesystem::path& file) {
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text(file));
  const std::string name = file.string();
  const Where where{.file = name};
  // The strict reader names what is wrong and where; the other keeps the order of keys.
  MOE_RETURN_IF_ERROR(parse_json(text, where).status());
  const OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_array()) return corrupt(where, "is no array of tools", kToolRemedy);
  std::vector<ToolSpec> tools;
  for (const OrderedJson& one : json) {
    MOE_ASSIGN_OR_RETURN(ToolSpec tool, read_tool(one, where, tools.size()));
    tools.push_back(std::move(tool));
  }
  return tools;
}

Result<std::vector<std::string>> split_command(std::string_view text) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = '\0';
  for (const char c : text) {
    const bool is_blank = c == ' ' || c == '\t';
    if (quote != '\0' ? c == quote : (c == '"' || c == '\'')) {
      quote = quote != '\0' ? '\0' : c;
    } else if (quote == '\0' && is_blank) {
      is_in_word = false;
      continue;
    } else {
      if (!std::exchange(is_in_word, true)) words.emplace_back();
      words.back() += c;
      continue;
    }
    if (!std::exchange(is_in_word, true)) words.emplace_back();
  }
  if (quote != '\0') return invalid_argument("a quotation mark is never closed", "close it");
  if (words.empty() || words.front().empty()) return invalid_argument("no command is named");
  return words;
}

Result<ToolCommands> ToolCommands::parse(const std::vector<std::string>& texts, double seconds) {
  ToolCommands commands;
  commands.seconds_ = seconds;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid_argument("--allow-tool " + printable(text, 80) + " is not NAME=COMMAND",
                              "name the tool and the program that answers its calls");
    }
    auto words = split_command(std::string_view(text).substr(equals + 1));
    if (!words.is_ok()) {
      return invalid_argument("--allow-tool " + printable(text, 80) + ": " +
                              words.status().message());
    }
    commands.commands_[text.substr(0, equals)] = std::move(words).value();
  }
  return commands;
}

Status ToolCommands::check_names(const std::vector<ToolSpec>& tools) const {
  for (const auto& [name, words] : commands_) {
    const auto has_name = [&wanted = name](const ToolSpec& tool) { return tool.name == wanted; };
    if (std::any_of(tools.begin(), tools.end(), has_name)) continue;
    return invalid_argument("--allow-tool " + printable(name, 80) + ": no tool has this name",
                            "name one of those in --tools");
  }
  return Status::ok();
}

std::string ToolCommands::run(const ToolCall& call) const {
  const auto found = commands_.find(call.name);
  if (found == commands_.end()) return "error: this tool cannot be used here";
  const ProcessResult result = run_process(found->second, call.arguments, seconds_);
  std::string text;
  append_lossy_utf8(result.output, true, text);
  const auto add_line = [&text](const std::string& line) {
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
    text += line;
  };
  if (result.leaves_writer)
    add_line("note: a process that it started goes on; its output is not read");
  if (!result.failure.empty()) add_line("error: " + result.failure);
  return text;
}

namespace {

// Whether one of the results, which stand behind the message of the call, is that of the call: by
// its id, or without one by its place.
bool is_answered(const ToolCall& call, std::size_t place, std::span<const ChatMessage> results) {
  const auto has_id = [&call](const ChatMessage& result) {
    return !call.id.empty() && result.tool_call_id == call.id;
  };
  if (std::any_of(results.begin(), results.end(), has_id)) return true;
  return place < results.size() && (call.id.empty() || results[place].tool_call_id.empty());
}

}  // namespace

std::size_t answer_open_calls(std::vector<ChatMessage>& messages, const std::string& text) {
  std::size_t answered = 0;
  for (std::size_t i = 0; i < messages.size();) {
    std::size_t end = i + 1;
    while (end < messages.size() && messages[end].role == ChatRole::kTool) ++end;
    const std::vector<ToolCall>& calls = messages[i].calls;
    const auto results = std::span<const ChatMessage>(messages).subspan(i + 1, end - i - 1);
    std::vector<ChatMessage> missing;
    for (std::size_t k = 0; k < calls.size(); ++k) {
      if (is_answered(calls[k], k, results)) continue;
      missing.push_back({.role = ChatRole::kTool,
                         .content = text,
                         .tool_call_id = calls[k].id,
                         .name = calls[k].name});
    }
    messages.insert(messages.begin() + static_cast<std::ptrdiff_t>(end), missing.begin(),
                    missing.end());
    answered += missing.size();
    i = end + missing.size();
  }
  return answered;
}

bool ToolPermission::allows(const ToolCall& call) {
  if (always_.contains(call.name)) return true;
  // The name stands at the end too, because the arguments may look like another question.
  const std::string question = "run " + call.name + " with " + call.arguments +
                               "? [y/n, a: always " + call.name + " in this session] ";
  const std::string answer(trimmed_line(ask_(question)));
  if (answer == "a") always_.insert(call.name);
  return answer == "a" || answer == "y" || answer == "yes";
}

}  // namespace moepack::cli
