// What a template needs of a conversation that clients do not send so: rules of history, as pure
// functions. Each returns the conversation as the template is to see it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/chat/conversation.h"

namespace moepack {

// Which of the rules a template needs; found by probes (template_probe.h).
struct HistoryRules {
  // A system message behind the first place is refused or lost: it becomes a user message in
  // place, between <system-reminder> tags. Moving it to the front would change the prompt's
  // beginning in every turn.
  bool late_system_to_user = false;
  bool needs_user = false;         // refused without a user message: an empty one is appended
  bool kimi_ids = false;           // ids of calls are functions.NAME:K, K counted from 0
  bool arguments_as_text = false;  // arguments of calls are added to text: they stay JSON text
  bool one_call_each = false;      // of several calls in a message only the first is rendered
};

Conversation late_systems_as_users(Conversation conversation);
Conversation with_a_user(Conversation conversation);
// Renames the ids of calls and of their results.
Conversation with_kimi_ids(Conversation conversation);
// Results stand in the order of the calls that they answer, by their ids: many templates show none,
// and the model reads the results in order. Those of unknown ids stay where they are.
Conversation with_results_in_order(Conversation conversation);
// A message with several calls becomes one message per call, each followed by its result.
Conversation with_one_call_each(Conversation conversation);

Conversation apply_history_rules(Conversation conversation, const HistoryRules& rules);

// The arguments of a call as JSON, {} for blank text; nullopt for what is no JSON within
// kMaxJsonDepth and kMaxOrderedJsonValues (formats/base/json.h). Where a key stands twice in an
// object, which models write, the last counts; in arguments of more than 16 KiB nullopt.
std::optional<OrderedJson> parse_arguments(const std::string& arguments);
// The arguments as the object that templates take apart: parsed if they are a JSON object, {} for
// blank text, else {"arguments": text}.
OrderedJson arguments_object(const std::string& arguments);

// The words that template_messages() writes as roles: the only texts of a conversation that are not
// somebody's, because requests are read with a fixed list of them (ChatRole).
std::vector<std::string> role_names();

// The messages in the form that templates read (OpenAI's, with reasoning_content and thinking).
// `arguments_as_text`: as HistoryRules says.
OrderedJson template_messages(const Conversation& conversation, bool arguments_as_text = false);
// The tools in that form; null without any.
OrderedJson template_tools(const Conversation& conversation);

}  // namespace moepack
