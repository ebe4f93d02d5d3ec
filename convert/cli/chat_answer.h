// One answer: asked for, shown as it comes, and given back whole.
#pragma once

#include <functional>
#include <string>

#include "convert/cli/chat_view.h"
#include "formats/base/status.h"
#include "runtime/service/answer_service.h"

namespace moepack::cli {

struct ChatAnswer {
  ChatMessage message;  // an assistant's; calls that ended only
  AnswerEnd end;
};

// Waits for the answer's end. Ctrl-C cancels the answer, which then ends with kCancelled; where it
// has not ended two seconds later, another Ctrl-C ends the program with kExitInterrupted. An error
// where the request is refused.
Result<ChatAnswer> take_answer(AnswerService& service, const ChatRequest& request, ChatView& view);

}  // namespace moepack::cli
