// What /set changes.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/service/answer_request.h"

namespace moepack::cli {

// temperature, top_k, top_p, min_p, repetition_penalty, frequency_penalty, presence_penalty, seed,
// max_tokens, thinking_budget (the last two: 0 is no limit).
Status change_setting(ChatRequest& request, std::string_view name, std::string_view value);
// One line each.
std::string settings_text(const ChatRequest& request);

}  // namespace moepack::cli
