#include "tests/serve/request_text.h"

#include <utility>

#include "runtime/serve/answer_writer.h"

namespace moepack::test {
namespace {

const char* role_name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
    case ChatRole::kTool:
      return "tool";
  }
  return "";
}

OrderedJson message_json(const ChatMessage& message) {
  OrderedJson calls = OrderedJson::array();
  for (const ToolCall& call : message.calls) {
    calls.push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
  }
  return {{"role", role_name(message.role)},      {"content", message.content},
          {"reasoning", message.reasoning},       {"calls", std::move(calls)},
          {"tool_call_id", message.tool_call_id}, {"name", message.name}};
}

OrderedJson conversation_json(const Conversation& conversation) {
  OrderedJson messages = OrderedJson::array();
  for (const ChatMessage& message : conversation.messages) {
    messages.push_back(message_json(message));
  }
  OrderedJson tools = OrderedJson::array();
  for (const ToolSpec& tool : conversation.tools) {
    tools.push_back({{"name", tool.name},
                     {"description", tool.description},
                     {"parameters", tool.parameters},
                     {"wire", tool.wire}});
  }
  return {{"messages", std::move(messages)},
          {"tools", std::move(tools)},
          {"template_arguments", conversation.template_arguments},
          {"add_generation_prompt", conversation.add_generation_prompt},
          {"continues_last", conversation.continues_last}};
}

template <typename Value>
OrderedJson optional_json(const std::optional<Value>& value) {
  return value.has_value() ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson options_json(const AnswerOptions& options) {
  const SamplerOptions& s = options.sampling;
  OrderedJson biases = OrderedJson::array();
  for (const LogitBias& bias : s.logit_bias) biases.push_back({bias.id, bias.bias});
  return {{"max_tokens", optional_json(options.max_tokens)},
          {"temperature", s.temperature},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"typical_p", s.typical_p},
          {"repetition_penalty", s.repetition_penalty},
          {"repeat_last_n", s.repeat_last_n},
          {"frequency_penalty", s.frequency_penalty},
          {"presence_penalty", s.presence_penalty},
          {"logit_bias", std::move(biases)},
          {"seed", s.seed},
          {"stop", options.stop},
          {"choices", options.choices},
          {"top_logprobs", optional_json(options.top_logprobs)},
          {"ignores_end", options.ignores_end}};
}

OrderedJson format_json(const ResponseFormat& format) {
  const char* kinds[] = {"text", "json_object", "json_schema"};
  return {{"kind", kinds[static_cast<int>(format.kind)]}, {"schema", format.schema}};
}

}  // namespace

OrderedJson request_json(const ChatRequest& request) {
  const char* kinds[] = {"auto", "none", "required"};
  return {{"conversation", conversation_json(request.conversation)},
          {"options", options_json(request.options)},
          {"tool_choice",
           {{"kind", kinds[static_cast<int>(request.tool_choice.kind)]},
            {"allowed", request.tool_choice.allowed},
            {"is_parallel", request.tool_choice.is_parallel}}},
          {"format", format_json(request.format)},
          {"thinks", optional_json(request.thinks)},
          {"thinking_budget", optional_json(request.thinking_budget)},
          {"cache_hints", request.cache_hints}};
}

OrderedJson request_json(const CompletionRequest& request) {
  OrderedJson prompt;
  std::visit([&](const auto& value) { prompt = value; }, request.prompt);
  return {{"prompt", std::move(prompt)},
          {"suffix", request.suffix},
          {"options", options_json(request.options)},
          {"format", format_json(request.format)},
          {"echo", request.echo}};
}

std::string request_text(const std::variant<ChatRequest, CompletionRequest>& request) {
  return std::visit([](const auto& r) { return dump_json(request_json(r)); }, request);
}

std::string conversation_text(const Conversation& conversation) {
  std::string text;
  for (const ChatMessage& message : conversation.messages) {
    text += "<" + std::string(role_name(message.role)) + ">" + message.content + "\n";
  }
  return text;
}

}  // namespace moepack::test
