// The exact text of calls as the model wrote them, found again when a client sends the call back.
// Written anew through JSON and a template the same call rarely has the same bytes, and a prompt is
// computed again from the first byte that differs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <span>
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

// A text as it was sampled, token by token.
struct GeneratedText {
  struct Token {
    std::int32_t id = 0;
    std::size_t end = 0;    // bytes of the text with it
    bool is_added = false;  // a marker of the vocabulary, and not text that spells one
  };
  std::string text;
  std::vector<Token> tokens;

  void add(std::int32_t id, std::string_view bytes, bool is_added);
};

// The text of one call.
struct CallText {
  std::string text;
  std::vector<std::int32_t> ids = {};   // its tokens; empty where they begin or end beyond it
  std::vector<TextRange> markers = {};  // ascending: bytes that were sampled as added tokens

  std::size_t bytes() const;
};

// The calls in a generated text, in order, markers included; one without an end is none.
std::vector<CallText> call_texts(const GeneratedText& generated, ToolFormat format);

// Under what a call with this id is remembered. Some models write the ids
// of their calls, so that the same come in other conversations, whose texts are nobody else's.
// `scope`: conversation_scope() of the messages before the answer.
std::string call_key(std::string_view scope, std::string_view id);
// Tells a beginning of a conversation from others.
std::string conversation_scope(std::span<const ChatMessage> messages);

// Bounded: the calls used least recently are forgotten. Any thread.
class CallMemory {
 public:
  CallMemory(std::size_t most_calls, std::size_t most_bytes)
      : most_calls_(most_calls), most_bytes_(most_bytes) {}

  // In place of what the key had. `key`: call_key().
  void remember(const std::string& key, CallText call);
  std::optional<CallText> recall(const std::string& key);

 private:
  struct Entry {
    std::string key;
    CallText call;
  };
  void drop(std::list<Entry>::iterator entry);

  std::size_t most_calls_, most_bytes_;
  std::mutex mutex_;
  std::size_t bytes_ = 0;
  std::list<Entry> entries_;  // the newest first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
};

// Puts the remembered texts of the conversation's calls in the place of what the template made of
// them: a call whose text, parsed again, is not the one that came back stays as it is, and so do
// all where the prompt has not one place for each call. Of a remembered text only the bytes that
// were sampled as added tokens are markers: arguments may spell any.
PromptText restore_calls(const PromptText& prompt, const Conversation& conversation,
                         ToolFormat format, CallMemory& memory);

}  // namespace moepack
