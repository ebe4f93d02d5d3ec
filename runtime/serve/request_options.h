// Parts of requests that Anthropic's Messages and OpenAI's Responses have in common.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/answer_options_json.h"
#include "runtime/serve/body_fields.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// Faults whose messages say the place, as in "tools[0].name is missing".
void refuse_field(const BodyFields& fields, std::string_view name, const std::string& what);
void refuse_at(RequestFault& fault, const std::string& what, const std::string& place);

// The member as text, or empty where it is no text; never a fault.
std::string_view text_or_empty(const BodyFields& fields, std::string_view name);
// A whole number that is not negative.
std::optional<std::uint64_t> read_count(const BodyFields& fields, std::string_view name);

// A list of texts, or one text; empty ones are skipped.
std::vector<std::string> read_stop_texts(const BodyFields& fields, std::string_view key);

// {"type":"text"|"json_object"|"json_schema","schema":…}; `schema` may also be missing with
// json_object. A schema's keywords are not looked at here.
ResponseFormat read_text_format(const OrderedJson& format, const std::string& path,
                                RequestFault& fault);

// "none" switches thoughts off; other words are what templates read as "reasoning_effort", in the
// steps they know: low, medium, high. A template that knows others is told them by
// "chat_template_kwargs", which goes to it as it is.
void set_reasoning_effort(ChatRequest& chat, const std::string& effort);

// "chat_template_kwargs": an object; its members go to the template and win over what was set
// before.
void read_template_arguments(const BodyFields& fields, ChatRequest& chat);

// Allows a tool of tool_choice; a name counts once.
void add_allowed(ToolChoice& choice, std::string name);
// When all of a list of allowed tools is read: where nothing is left of it because the tools were
// skipped, no tool may be called, and a fault if one must be. `field` is the list.
void settle_allowed(ToolChoice& choice, const BodyFields& fields, std::string_view field);

// With the wire form of Chat Completions, which templates know. Parameters that are null: none.
ToolSpec function_tool(std::string name, std::string description, OrderedJson parameters);
// The first of a name counts.
void add_tool(std::vector<ToolSpec>& tools, ToolSpec tool);
bool offers_tool(const std::vector<ToolSpec>& tools, std::string_view name);

}  // namespace moepack
