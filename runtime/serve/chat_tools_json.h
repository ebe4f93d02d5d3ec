// Tools and the choice among them, as OpenAI's clients write them.
#pragma once

#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/serve/body_fields.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// "tools", and the old "functions". Tools that are no functions are left out.
std::vector<ToolSpec> read_chat_tools(const BodyFields& request);

// "tool_choice", the old "function_call" and "parallel_tool_calls". A name that no tool has is a
// fault.
ToolChoice read_tool_choice(const BodyFields& request, const std::vector<ToolSpec>& tools);

}  // namespace moepack
