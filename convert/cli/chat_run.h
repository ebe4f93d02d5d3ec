// A whole chat over a service: at a terminal a conversation, else one answer.
#pragma once

#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/service/answer_service.h"

namespace moepack::cli {

struct ChatRunOptions {
  ChatRequest request;
  std::string prompt;                    // not empty: one answer
  std::string system;                    // empty: none
  std::string tools_file;                // empty: none
  std::vector<std::string> allow_tools;  // NAME=COMMAND
  double tool_seconds = 30;
  bool shows_thoughts = false;
  bool keeps_history = true;
};

// Everything that can be wrong with the options before a model is opened; fills in the tools.
Status prepare_chat(ChatRunOptions& options);

// After hold_interrupts(). With a prompt, or where stdin is no terminal: the prompt and all of
// stdin are one message, its answer goes to stdout; true: it was stopped by Ctrl-C.
Result<bool> run_chat(AnswerService& service, const ChatRunOptions& options);

}  // namespace moepack::cli
