// The messages of a chat request, as OpenAI's clients and their relatives write them.
#pragma once

#include <vector>

#include "runtime/chat/conversation.h"
#include "runtime/serve/body_fields.h"

namespace moepack {

// Roles system, developer (the same), user, assistant, tool and the old function. `messages`: the
// array. What is missing in a call (its id) stays empty; arguments are kept as text.
std::vector<ChatMessage> read_chat_messages(const OrderedJson& messages, RequestFault& fault);

}  // namespace moepack
