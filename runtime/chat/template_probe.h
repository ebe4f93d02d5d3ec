// What small test conversations tell of a template.
#pragma once

#include <functional>
#include <string>

#include "formats/base/status.h"
#include "runtime/chat/chat_template.h"
#include "runtime/chat/history.h"

namespace moepack {

// Renders a conversation as it is, without rules of history.
using ProbeRender = std::function<Result<std::string>(const Conversation& conversation)>;

// `source` is the template's text.
TemplateFacts probe_facts(const std::string& source, const Tokenizer& tokenizer,
                          const ProbeRender& render);
// All rules but arguments_as_text.
HistoryRules probe_history_rules(const TemplateFacts& facts, const ProbeRender& render);
// The plainest conversation that a template must render.
Conversation probe_conversation();
// One with a tool, thoughts, a call and its result.
Conversation probe_calls();

}  // namespace moepack
