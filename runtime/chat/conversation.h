// A conversation as every protocol says it: messages, tools and what the template is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/schema/ordered_json.h"

namespace moepack {

enum class ChatRole : std::uint8_t { kSystem, kUser, kAssistant, kTool };

// A function that the model wants called.
struct ToolCall {
  std::string id = {};  // unique in the conversation
  std::string name = {};
  std::string arguments = {};  // JSON text as it was generated or sent; normally an object
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content = {};
  std::string reasoning = {};        // of an assistant: what it thought before it answered
  std::vector<ToolCall> calls = {};  // of an assistant
  std::string tool_call_id = {};     // of a tool: whose result this is; may be empty
  std::string name = {};             // of a tool, optional
};

// A function that the model may have called.
struct ToolSpec {
  std::string name = {};
  std::string description = {};
  OrderedJson parameters;  // its JSON schema, as sent; null: no arguments
  OrderedJson wire;        // {"type":"function","function":{…}} as sent, for the template
};

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<ToolSpec> tools;
  OrderedJson template_arguments = OrderedJson::object();  // "chat_template_kwargs"
  bool add_generation_prompt = true;
  bool continues_last =
      false;  // the last message is an assistant's, and the answer goes on from it
};

}  // namespace moepack
