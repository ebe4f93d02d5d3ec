#include "runtime/serve/responses_request.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/request_limits.h"
#include "runtime/serve/request_options.h"
#include "runtime/serve/responses_input.h"

namespace moepack {
namespace {

void refuse_what_needs_memory(const BodyFields& fields) {
  for (const char* key : {"previous_response_id", "conversation"}) {
    if (fields.find(key) != nullptr) {
      refuse_field(fields, key, "nothing is kept between requests: send the full input");
    }
  }
  if (fields.find("prompt") != nullptr)
    refuse_field(fields, "prompt", "stored prompts are not supported");
  if (fields.flag("background").value_or(false)) {
    refuse_field(fields, "background", "answers in the background are not supported");
  }
}

void read_responses_input(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  ResponsesInput conversion(chat.conversation, fault);
  conversion.add_instructions(fields.text("instructions").value_or(""));
  const OrderedJson* input = fields.find("input");
  if (input == nullptr)
    return refuse_field(fields, "input", "is missing: a text or a list of items");
  if (input->is_string()) return conversion.add_user(input->get<std::string>());
  if (!input->is_array()) return refuse_field(fields, "input", "must be a text or a list of items");
  for (std::size_t i = 0; i < input->size(); ++i) {
    conversion.add_item((*input)[i], element_place("input", i));
  }
  if (chat.conversation.messages.empty()) refuse_field(fields, "input", "has no message");
}

void read_responses_tools(const BodyFields& fields, ResponsesRequest& request,
                          RequestFault& fault) {
  OrderedJson& echo = request.echo["tools"];
  echo = OrderedJson::array();
  const OrderedJson* tools = fields.array("tools");
  if (tools == nullptr) return;
  check_tools(fields, "tools", *tools);
  if (fault.is_set()) return;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const OrderedJson& tool = (*tools)[i];
    const std::string path = element_place("tools", i);
    if (!tool.is_object()) return refuse_at(fault, "must be an object", path);
    const BodyFields parts(tool, path + ".", fault);
    if (text_or_empty(parts, "type") != "function") continue;
    const std::string name = read_tool_name(parts);
    if (name.empty()) return;
    const OrderedJson* parameters = parts.object("parameters");
    add_tool(request.chat.conversation.tools,
             function_tool(name, std::string(text_or_empty(parts, "description")),
                           parameters == nullptr ? OrderedJson(nullptr) : *parameters));
    echo.push_back(tool);
  }
}

ToolChoice::Kind tool_choice_kind(const BodyFields& fields, std::string_view key,
                                  std::string_view word, bool has_tools) {
  if (word == "none") return ToolChoice::Kind::kNone;
  if (word == "required") {
    if (!has_tools) refuse_field(fields, key, "required needs tools");
    return ToolChoice::Kind::kRequired;
  }
  if (word != "auto") refuse_field(fields, key, "must be auto, none or required");
  return ToolChoice::Kind::kAuto;
}

void allow_tool(const BodyFields& fields, ChatRequest& chat) {
  const std::string name = fields.text("name").value_or("");
  if (offers_tool(chat.conversation.tools, name)) {
    add_allowed(chat.tool_choice, name);
  } else {
    refuse_field(fields, "name", "is not the name of a function in tools");
  }
}

void read_allowed_tools(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  const bool has_tools = !chat.conversation.tools.empty();
  chat.tool_choice.kind =
      tool_choice_kind(fields, "mode", fields.text("mode").value_or("auto"), has_tools);
  const OrderedJson* tools = fields.array("tools");
  if (tools == nullptr) return;
  check_tools(fields, "tools", *tools);
  if (fault.is_set()) return;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string path = element_place(fields.place_of("tools"), i);
    if (!(*tools)[i].is_object()) return refuse_at(fault, "must be an object", path);
    const BodyFields parts((*tools)[i], path + ".", fault);
    if (text_or_empty(parts, "type") == "function") allow_tool(parts, chat);
  }
  settle_allowed(chat.tool_choice, fields, "tools");
}

void read_responses_choice(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  chat.tool_choice.is_parallel = fields.flag("parallel_tool_calls").value_or(true);
  const OrderedJson* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    chat.tool_choice.kind =
        tool_choice_kind(fields, "tool_choice", choice->get_ref<const std::string&>(),
                         !chat.conversation.tools.empty());
    return;
  }
  if (!choice->is_object())
    return refuse_field(fields, "tool_choice", "must be a text or an object");
  const BodyFields parts(*choice, "tool_choice.", fault);
  const std::string_view type = text_or_empty(parts, "type");
  if (type == "allowed_tools") {
    read_allowed_tools(parts, chat, fault);
  } else if (type == "function") {
    chat.tool_choice.kind = ToolChoice::Kind::kRequired;
    allow_tool(parts, chat);
  } else if (type == "custom") {
    refuse_field(fields, "tool_choice",
                 "asks for a custom tool: this server offers functions alone");
  }  // others choose tools that run elsewhere and were skipped
}

void read_responses_reasoning(const BodyFields& fields, ResponsesRequest& request,
                              RequestFault& fault) {
  OrderedJson& echo = request.echo["reasoning"];
  echo = {{"effort", nullptr}, {"summary", nullptr}};
  const OrderedJson* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  const BodyFields parts(*reasoning, "reasoning.", fault);
  const std::optional<std::string> effort = read_word(parts, "effort");
  if (!effort) return;
  echo["effort"] = *effort;
  set_reasoning_effort(request.chat, *effort);
}

void read_responses_text(const BodyFields& fields, ResponsesRequest& request, RequestFault& fault) {
  OrderedJson& echo = request.echo["text"];
  echo = {{"format", {{"type", "text"}}}};
  const OrderedJson* text = fields.object("text");
  if (text == nullptr) return;
  const BodyFields parts(*text, "text.", fault);
  const OrderedJson* format = parts.object("format");
  if (format == nullptr) return;
  echo["format"] = *format;
  request.chat.format = read_text_format(*format, "text.format", fault);
}

void read_responses_logprobs(const BodyFields& fields, ChatRequest& chat, RequestFault& fault) {
  const OrderedJson* include = fields.array("include");
  const bool wants = include != nullptr &&
                     std::any_of(include->begin(), include->end(), [](const OrderedJson& name) {
                       return name.is_string() && name == "message.output_text.logprobs";
                     });
  const std::optional<std::uint64_t> count = read_count(fields, "top_logprobs");
  if (count && *count > 20) return refuse_at(fault, "must be from 0 to 20", "top_logprobs");
  if (wants || count.value_or(0) > 0) {
    chat.options.top_logprobs = static_cast<std::uint32_t>(count.value_or(0));
  }
}

void echo_member(const OrderedJson& body, const char* key, OrderedJson absent, OrderedJson& echo) {
  const auto found = body.find(key);
  echo[key] = found == body.end() || found->is_null() ? std::move(absent) : *found;
}

void echo_rest(const OrderedJson& body, const ChatRequest& chat, OrderedJson& echo) {
  echo_member(body, "instructions", nullptr, echo);
  echo_member(body, "max_output_tokens", nullptr, echo);
  echo_member(body, "metadata", OrderedJson::object(), echo);
  echo_member(body, "tool_choice", "auto", echo);
  echo_member(body, "temperature", static_cast<double>(chat.options.sampling.temperature), echo);
  echo_member(body, "top_p", static_cast<double>(chat.options.sampling.top_p), echo);
  echo_member(body, "prompt_cache_key", nullptr, echo);
  echo["parallel_tool_calls"] = chat.tool_choice.is_parallel;
  echo["previous_response_id"] = nullptr;
  echo["store"] = false;
  echo["truncation"] = "disabled";
}

}  // namespace

std::variant<ResponsesRequest, ApiError> read_responses_request(const OrderedJson& body,
                                                                ResponsesPurpose purpose,
                                                                const AnswerOptions& defaults) {
  RequestFault fault;
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  const BodyFields fields(body, "", fault);
  request.model = read_model_name(fields);
  request.streams = fields.flag("stream").value_or(false);
  refuse_what_needs_memory(fields);
  for (const char* name : {"metadata", "prompt_cache_key"}) check_echo(fields, name);
  read_responses_input(fields, chat, fault);
  read_responses_tools(fields, request, fault);
  read_responses_choice(fields, chat, fault);
  read_responses_reasoning(fields, request, fault);
  read_responses_text(fields, request, fault);
  if (purpose == ResponsesPurpose::kAnswer) {
    chat.options = read_answer_options(fields, defaults);
    chat.options.choices = 1;
    if (fields.find("max_output_tokens") != nullptr) {
      chat.options.max_tokens = read_count(fields, "max_output_tokens");
    }
    read_responses_logprobs(fields, chat, fault);
  }
  read_template_arguments(fields, chat);
  if (fault.is_set()) return *fault.error();
  echo_rest(body, chat, request.echo);
  return request;
}

}  // namespace moepack
