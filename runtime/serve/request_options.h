// Parts of requests that Anthropic's Messages and OpenAI's Responses have in common.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/request_fields.h"
#include "runtime/service/answer_request.h"

namespace moepack {

// temperature, top_p, top_k, min_p, seed: what is absent keeps its value.
void read_sampling(const RequestFields& fields, SamplerOptions& options);

// A list of texts, or one text; empty ones are skipped.
std::vector<std::string> read_stop_texts(const RequestFields& fields, std::string_view key);

// {"type":"text"|"json_object"|"json_schema","schema":…}; `schema` may also be missing with
// json_object. A schema's keywords are not looked at here.
ResponseFormat read_response_format(const OrderedJson& format, const std::string& path,
                                    RequestProblem& problem);

// "none" switches thoughts off; other words are what templates read as "reasoning_effort", in the
// steps they know: low, medium, high.
void set_reasoning_effort(ChatRequest& chat, const std::string& effort);

// "chat_template_kwargs": an object; its members go to the template and win over what was set
// before.
void read_template_arguments(const RequestFields& fields, ChatRequest& chat);

// With the wire form of Chat Completions, which templates know. Parameters that are null: none.
ToolSpec function_tool(std::string name, std::string description, OrderedJson parameters);
// The first of a name counts.
void add_tool(std::vector<ToolSpec>& tools, ToolSpec tool);
bool offers_tool(const std::vector<ToolSpec>& tools, std::string_view name);

}  // namespace moepack
