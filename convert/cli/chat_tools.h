// Tools of a conversation: what the model may call, and the commands that answer.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"

namespace moepack::cli {

// A JSON array of tools as OpenAI's clients send them, or of the functions in them.
Result<std::vector<ToolSpec>> read_tools_file(const std::filesystem::path& file);

// The words of a command line: separated by blanks, '…' and "…" keep blanks. No shell reads it, so
// nothing else has a meaning.
Result<std::vector<std::string>> split_command(std::string_view text);

// Which command answers a tool's calls.
class ToolCommands {
 public:
  // NAME=COMMAND of each; a name that `tools` lacks is an error where there are tools.
  static Result<ToolCommands> parse(const std::vector<std::string>& texts, double seconds);

  bool has(const std::string& tool) const { return commands_.contains(tool); }
  Status check_names(const std::vector<ToolSpec>& tools) const;
  // Runs the command with the arguments on its stdin. What it prints, or why it failed: both are
  // for the model.
  std::string run(const ToolCall& call) const;

 private:
  std::map<std::string, std::vector<std::string>> commands_;
  double seconds_ = 30;
};

// Answers the calls that have no result among the messages right behind their own with `text`,
// behind the results that are there: a template refuses a conversation with a call that nobody
// answered, or shows the model one that waits. How many it answered.
std::size_t answer_open_calls(std::vector<ChatMessage>& messages, const std::string& text);

// Asks before each call whether its command may run. `ask`: shows a question and gives the answer.
class ToolPermission {
 public:
  explicit ToolPermission(std::function<std::string(const std::string& question)> ask)
      : ask_(std::move(ask)) {}
  bool allows(const ToolCall& call);

 private:
  std::function<std::string(const std::string&)> ask_;
  std::set<std::string> always_;
};

}  // namespace moepack::cli
