// The exact text of calls as the model wrote them, found again when a client sends the call back.
// Written anew through JSON and a template the same call rarely has the same bytes, and a prompt is
// computed again from the first byte that differs.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/chat/prompt_text.h"
#include "runtime/chat/tool_format.h"

namespace moepack {

// The literal begin and end of one call in this format; empty where calls are not written that way.
struct CallMarkers {
  std::string_view begin, end;
};
CallMarkers call_markers(ToolFormat format);

// The calls in a generated text, in order, markers included; one without an end is none.
std::vector<std::string> call_texts(std::string_view generated, ToolFormat format);

// Bounded: the calls used least recently are forgotten. Any thread.
class CallMemory {
 public:
  CallMemory(std::size_t most_calls, std::size_t most_bytes)
      : most_calls_(most_calls), most_bytes_(most_bytes) {}

  void remember(const std::string& id, std::string text);
  std::optional<std::string> recall(const std::string& id);

 private:
  struct Entry {
    std::string id, text;
  };
  void drop_oldest();

  std::size_t most_calls_, most_bytes_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // the newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
};

// Puts the remembered texts of the conversation's calls in the place of what the template made of
// them: a call whose text, parsed again, is not the one that came back stays as it is, and so do
// all where the prompt has not one place for each call.
PromptText restore_calls(const PromptText& prompt, const Conversation& conversation,
                         ToolFormat format, CallMemory& memory);

}  // namespace moepack
