#include "runtime/serve/responses_request.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/serve/request_options.h"
#include "runtime/serve/responses_input.h"

namespace moepack {
namespace {

void refuse_what_needs_memory(const RequestFields& fields) {
  for (const char* key : {"previous_response_id", "conversation"}) {
    if (fields.find(key) != nullptr) {
      fields.refuse(key, "nothing is kept between requests: send the full input");
    }
  }
  if (fields.find("prompt") != nullptr) fields.refuse("prompt", "stored prompts are not supported");
  if (fields.flag("background").value_or(false)) {
    fields.refuse("background", "answers in the background are not supported");
  }
}

void read_responses_input(const RequestFields& fields, ChatRequest& chat, RequestProblem& problem) {
  ResponsesInput conversion(chat.conversation, problem);
  conversion.add_instructions(fields.text("instructions").value_or(""));
  const OrderedJson* input = fields.find("input");
  if (input == nullptr) return fields.refuse("input", "is missing: a text or a list of items");
  if (input->is_string()) return conversion.add_user(input->get<std::string>());
  if (!input->is_array()) return fields.refuse("input", "must be a text or a list of items");
  for (std::size_t i = 0; i < input->size(); ++i) {
    conversion.add_item((*input)[i], path_of_element("input", i));
  }
  if (chat.conversation.messages.empty()) fields.refuse("input", "has no message");
}

void read_responses_tools(const RequestFields& fields, ResponsesRequest& request,
                          RequestProblem& problem) {
  OrderedJson& echo = request.echo["tools"];
  echo = OrderedJson::array();
  const OrderedJson* tools = fields.array("tools");
  if (tools == nullptr) return;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const OrderedJson& tool = (*tools)[i];
    const std::string path = path_of_element("tools", i);
    if (!tool.is_object()) return set_problem(problem, "must be an object", path);
    const RequestFields parts(tool, path, problem);
    if (parts.text_or_empty("type") != "function") continue;
    const std::string name = parts.text("name").value_or("");
    if (name.empty()) return parts.refuse("name", "is missing: the name of the function");
    const OrderedJson* parameters = parts.object("parameters");
    add_tool(request.chat.conversation.tools,
             function_tool(name, std::string(parts.text_or_empty("description")),
                           parameters == nullptr ? OrderedJson(nullptr) : *parameters));
    echo.push_back(tool);
  }
}

ToolChoice::Kind tool_choice_kind(const RequestFields& fields, std::string_view key,
                                  std::string_view word, bool has_tools) {
  if (word == "none") return ToolChoice::Kind::kNone;
  if (word == "required") {
    if (!has_tools) fields.refuse(key, "required needs tools");
    return ToolChoice::Kind::kRequired;
  }
  if (word != "auto") fields.refuse(key, "must be auto, none or required");
  return ToolChoice::Kind::kAuto;
}

void allow_tool(const RequestFields& fields, ChatRequest& chat) {
  const std::string name = fields.text("name").value_or("");
  if (offers_tool(chat.conversation.tools, name)) {
    chat.tool_choice.allowed.push_back(name);
  } else {
    fields.refuse("name", "is not the name of a function in tools");
  }
}

void read_allowed_tools(const RequestFields& fields, ChatRequest& chat, RequestProblem& problem) {
  const bool has_tools = !chat.conversation.tools.empty();
  chat.tool_choice.kind =
      tool_choice_kind(fields, "mode", fields.text("mode").value_or("auto"), has_tools);
  const OrderedJson* tools = fields.array("tools");
  if (tools == nullptr) return;
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const std::string path = path_of_element(fields.path_of("tools"), i);
    if (!(*tools)[i].is_object()) return set_problem(problem, "must be an object", path);
    const RequestFields parts((*tools)[i], path, problem);
    if (parts.text_or_empty("type") == "function") allow_tool(parts, chat);
  }
}

void read_responses_choice(const RequestFields& fields, ChatRequest& chat,
                           RequestProblem& problem) {
  chat.tool_choice.is_parallel = fields.flag("parallel_tool_calls").value_or(true);
  const OrderedJson* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    chat.tool_choice.kind =
        tool_choice_kind(fields, "tool_choice", choice->get_ref<const std::string&>(),
                         !chat.conversation.tools.empty());
    return;
  }
  if (!choice->is_object()) return fields.refuse("tool_choice", "must be a text or an object");
  const RequestFields parts(*choice, "tool_choice", problem);
  const std::string_view type = parts.text_or_empty("type");
  if (type == "allowed_tools") {
    read_allowed_tools(parts, chat, problem);
  } else if (type == "function") {
    chat.tool_choice.kind = ToolChoice::Kind::kRequired;
    allow_tool(parts, chat);
  }  // others choose tools that were skipped
}

void read_responses_reasoning(const RequestFields& fields, ResponsesRequest& request,
                              RequestProblem& problem) {
  OrderedJson& echo = request.echo["reasoning"];
  echo = {{"effort", nullptr}, {"summary", nullptr}};
  const OrderedJson* reasoning = fields.object("reasoning");
  if (reasoning == nullptr) return;
  const RequestFields parts(*reasoning, "reasoning", problem);
  const std::optional<std::string> effort = parts.text("effort");
  if (!effort) return;
  echo["effort"] = *effort;
  set_reasoning_effort(request.chat, *effort);
}

void read_responses_text(const RequestFields& fields, ResponsesRequest& request,
                         RequestProblem& problem) {
  OrderedJson& echo = request.echo["text"];
  echo = {{"format", {{"type", "text"}}}};
  const OrderedJson* text = fields.object("text");
  if (text == nullptr) return;
  const RequestFields parts(*text, "text", problem);
  const OrderedJson* format = parts.object("format");
  if (format == nullptr) return;
  echo["format"] = *format;
  request.chat.format = read_response_format(*format, "text.format", problem);
}

void read_responses_logprobs(const RequestFields& fields, ChatRequest& chat,
                             RequestProblem& problem) {
  const OrderedJson* include = fields.array("include");
  const bool wants = include != nullptr &&
                     std::any_of(include->begin(), include->end(), [](const OrderedJson& name) {
                       return name.is_string() && name == "message.output_text.logprobs";
                     });
  const std::optional<std::uint64_t> count = fields.count("top_logprobs");
  if (count && *count > 20) return set_problem(problem, "must be from 0 to 20", "top_logprobs");
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
                                                                const SamplerOptions& defaults) {
  RequestProblem problem;
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat.options.sampling = defaults;
  const RequestFields fields(body, "", problem);
  request.model = fields.text("model").value_or("");
  request.streams = fields.flag("stream").value_or(false);
  refuse_what_needs_memory(fields);
  read_responses_input(fields, chat, problem);
  read_responses_tools(fields, request, problem);
  read_responses_choice(fields, chat, problem);
  read_responses_reasoning(fields, request, problem);
  read_responses_text(fields, request, problem);
  if (purpose == ResponsesPurpose::kAnswer) {
    chat.options.max_tokens = fields.count("max_output_tokens");
    read_sampling(fields, chat.options.sampling);
    read_responses_logprobs(fields, chat, problem);
  }
  if (fields.find("stop") != nullptr) chat.options.stop = read_stop_texts(fields, "stop");
  read_template_arguments(fields, chat);
  if (problem) return std::move(*problem);
  echo_rest(body, chat, request.echo);
  return request;
}

}  // namespace moepack
