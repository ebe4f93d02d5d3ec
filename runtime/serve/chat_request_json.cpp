#include "runtime/serve/chat_request_json.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/serve/answer_options_json.h"
#include "runtime/serve/body_fields.h"
#include "runtime/serve/chat_messages_json.h"
#include "runtime/serve/chat_tools_json.h"
#include "runtime/serve/request_limits.h"
#include "runtime/serve/request_options.h"

namespace moepack {
namespace {

constexpr std::int64_t kMostTopLogprobs = 20;
constexpr std::int64_t kMostWhole = std::numeric_limits<std::int64_t>::max();

void read_form(const BodyFields& request, AnswerForm& form) {
  form.streams = request.flag("stream").value_or(false);
  if (const OrderedJson* options = request.object("stream_options")) {
    const BodyFields fields(*options, "stream_options.", request.fault());
    form.has_usage = fields.flag("include_usage").value_or(false);
  }
  form.has_progress = request.flag("return_progress").value_or(false);
  form.has_timings = request.flag("timings_per_token").value_or(false);
  form.shows_reasoning = request.flag("include_reasoning").value_or(true);
  const std::string format = request.text("reasoning_format").value_or("auto");
  form.inlines_reasoning = format == "none";
  if (format != "auto" && format != "none" && !format.starts_with("deepseek")) {
    request.fail("reasoning_format", "reasoning_format must be \"auto\", \"deepseek\" or \"none\"");
  }
}

void read_chat_logprobs(const BodyFields& request, AnswerOptions& options) {
  const bool wants = request.flag("logprobs").value_or(false);
  const auto top = request.whole("top_logprobs", 0, kMostTopLogprobs);
  if (top.has_value() && *top > 0 && !wants) {
    request.fail("top_logprobs", "top_logprobs needs \"logprobs\": true");
  }
  if (wants) options.top_logprobs = static_cast<std::uint32_t>(top.value_or(0));
}

void set_budget(ChatRequest& chat, std::optional<std::int64_t> tokens) {
  if (!tokens.has_value() || *tokens < 0) return;
  chat.thinking_budget = static_cast<std::uint64_t>(*tokens);
  if (*tokens == 0) chat.thinks = false;
}

void read_effort(const BodyFields& fields, std::string_view name, ChatRequest& chat) {
  const auto effort = read_word(fields, name);
  if (!effort.has_value()) return;
  const bool is_set = chat.conversation.template_arguments.contains("reasoning_effort");
  if (!is_set || *effort == "none") set_reasoning_effort(chat, *effort);
}

// {"type":"enabled"}, "disabled", true.
void read_thinking_field(const BodyFields& request, ChatRequest& chat) {
  const OrderedJson* json = request.find("thinking");
  if (json == nullptr) return;
  if (json->is_boolean()) {
    chat.thinks = json->get<bool>();
    return;
  }
  std::string type;
  if (json->is_string()) type = json->get<std::string>();
  if (json->is_object()) {
    const BodyFields fields(*json, "thinking.", request.fault());
    type = fields.text("type").value_or("");
    set_budget(chat, fields.whole("budget_tokens", -1, kMostWhole));
  }
  if (type == "enabled" || type == "adaptive") {
    chat.thinks = true;
  } else if (type == "disabled") {
    chat.thinks = false;
  } else if (!type.empty() && type != "auto") {
    request.fail("thinking", "thinking must be enabled, disabled, adaptive or auto");
  }
}

void read_reasoning_field(const BodyFields& request, ChatRequest& chat, AnswerForm& form) {
  const OrderedJson* json = request.find("reasoning");
  if (json == nullptr || !json->is_object()) return;
  const BodyFields fields(*json, "reasoning.", request.fault());
  read_effort(fields, "effort", chat);
  if (const auto enabled = fields.flag("enabled")) chat.thinks = *enabled;
  if (fields.flag("exclude").value_or(false)) form.shows_reasoning = false;
  set_budget(chat, fields.whole("max_tokens", -1, kMostWhole));
}

void read_template_switches(const BodyFields& request, ChatRequest& chat) {
  const OrderedJson* json = request.object("chat_template_kwargs");
  if (json == nullptr) return;
  check_template_arguments(request, *json);
  if (request.fault().is_set()) return;
  chat.conversation.template_arguments = *json;
  const BodyFields fields(*json, "chat_template_kwargs.", request.fault());
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (const auto thinks = fields.flag(name)) chat.thinks = *thinks;
  }
}

// Every way to say whether and how long the model thinks; the more special ones come last.
void read_thinking(const BodyFields& request, ChatRequest& chat, AnswerForm& form) {
  read_template_switches(request, chat);
  const std::optional<bool> template_thinks = chat.thinks;
  read_effort(request, "reasoning_effort", chat);
  read_reasoning_field(request, chat, form);
  read_thinking_field(request, chat);
  if (const auto thinks = request.flag("enable_thinking")) chat.thinks = *thinks;
  for (const char* name : {"thinking_budget", "thinking_budget_tokens", "thinking_token_budget"}) {
    set_budget(chat, request.whole(name, -1, kMostWhole));
  }
  if (template_thinks.has_value()) chat.thinks = template_thinks;
}

// Whether the answer goes on from the last message.
void read_continuation(const BodyFields& request, Conversation& conversation) {
  const auto& messages = conversation.messages;
  const auto is_assistant = [&](std::size_t from_end) {
    return messages.size() >= from_end &&
           messages[messages.size() - from_end].role == ChatRole::kAssistant;
  };
  const bool can_continue = is_assistant(1) && messages.back().calls.empty();
  const auto prompt = request.flag("add_generation_prompt");
  const auto wanted = request.flag("continue_final_message");
  const bool continues = wanted.value_or(can_continue && !prompt.value_or(false));
  if (continues && !can_continue) {
    request.fail("continue_final_message",
                 "continue_final_message needs an assistant's message without calls at the end");
  }
  if (continues && prompt.value_or(false)) {
    request.fail("add_generation_prompt",
                 "add_generation_prompt and continue_final_message exclude each other");
  }
  if (continues && is_assistant(2)) {
    request.fail("messages",
                 "two messages of the assistant stand at the end; only one can be "
                 "continued");
  }
  conversation.continues_last = continues;
  conversation.add_generation_prompt = !continues && prompt.value_or(true);
}

void read_conversation(const BodyFields& request, ChatRequest& chat) {
  const OrderedJson* messages = request.array("messages");
  if (messages == nullptr || messages->empty()) {
    return request.fail("messages", "messages is missing or empty");
  }
  chat.conversation.messages = read_chat_messages(*messages, request.fault());
  if (request.fault().is_set()) return;
  chat.conversation.tools = read_chat_tools(request);
  if (request.fault().is_set()) return;
  chat.tool_choice = read_tool_choice(request, chat.conversation.tools);
  read_continuation(request, chat.conversation);
}

}  // namespace

std::variant<ParsedChatRequest, ApiError> parse_chat_request(const OrderedJson& json,
                                                             const AnswerOptions& defaults) {
  RequestFault fault;
  const BodyFields request(json, "", fault);
  ParsedChatRequest parsed;
  parsed.model = read_model_name(request);
  read_conversation(request, parsed.request);
  if (request.find("chat_template") != nullptr) {
    request.fail("chat_template", "a chat_template in the request is not taken by this server");
  }
  parsed.request.options = read_answer_options(request, defaults);
  check_choices(request, parsed.request.options.choices);
  read_chat_logprobs(request, parsed.request.options);
  parsed.request.format = read_response_format(request);
  read_form(request, parsed.form);
  read_thinking(request, parsed.request, parsed.form);
  if (fault.is_set()) return *fault.error();
  return parsed;
}

}  // namespace moepack
