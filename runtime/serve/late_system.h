// Instructions that come in the middle of a conversation.
#pragma once

#include <string_view>

#include "runtime/chat/conversation.h"

namespace moepack {

constexpr std::string_view kReminderBegin = "<system-reminder>";
constexpr std::string_view kReminderEnd = "</system-reminder>";

// Templates refuse system messages that are not the first, and moving them to the front would
// change the whole prompt with each request. So the text becomes the user's, in its place, between
// kReminderBegin and kReminderEnd unless it has them. Behind the result of a tool it is added to
// that result: templates take a user's message for a new question and drop the thoughts before it.
void add_late_system_text(Conversation& conversation, std::string_view text);

// Whether a user's text is such a reminder that belongs to the result of a tool before it.
bool joins_tool_result(const Conversation& conversation, std::string_view text);

}  // namespace moepack
