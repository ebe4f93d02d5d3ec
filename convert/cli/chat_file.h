// A conversation as a file: JSON, written whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"

namespace moepack::cli {

// {"format": "moepack-chat", "version": 1, "messages": [{"role", "content", "reasoning",
// "tool_calls": [{"id", "name", "arguments"}], "tool_call_id", "name"}]}; empty parts are left out.
Status save_chat(const std::filesystem::path& file, const std::vector<ChatMessage>& messages);
Result<std::vector<ChatMessage>> load_chat(const std::filesystem::path& file);
// The same from the file's text; `name` stands in errors.
Result<std::vector<ChatMessage>> parse_chat(std::string_view text, const std::string& name);

}  // namespace moepack::cli
