#include "runtime/chat/template_probe.h"

#include <array>
#include <string_view>
#include <utility>

namespace moepack {
namespace {

constexpr std::string_view kProbeQuestion = "probe-question";
constexpr std::string_view kProbeThought = "probe-thought";
constexpr std::string_view kProbeTool = "probe_tool";
constexpr std::string_view kProbeSystem = "probe-system";

ChatMessage probe_message(ChatRole role, std::string_view content) {
  ChatMessage message;
  message.role = role;
  message.content = content;
  return message;
}

bool shows(const Result<std::string>& rendered, std::string_view what) {
  return rendered.is_ok() && rendered.value().find(what) != std::string::npos;
}

// The table of families, the most telling marker first.
constexpr std::array<std::pair<std::string_view, ToolFormat>, 8> kFamilyMarkers = {{
    {"<|channel|>", ToolFormat::kHarmony},
    {"<|tool_calls_section_begin|>", ToolFormat::kKimi},
    {"<minimax:tool_call>", ToolFormat::kMinimax},
    {"｜DSML｜", ToolFormat::kDsml},
    {"<｜tool▁calls▁begin｜>", ToolFormat::kDeepseek},
    {"<arg_key>", ToolFormat::kGlm},
    {"<function=", ToolFormat::kQwenXml},
    {"<tool_call>", ToolFormat::kHermes},
}};

ToolFormat format_of(std::string_view source) {
  for (const auto& [marker, format] : kFamilyMarkers) {
    if (source.find(marker) != std::string_view::npos) return format;
  }
  return ToolFormat::kNone;
}

ToolFormat format_of(const Tokenizer& tokenizer) {
  for (const auto& [marker, format] : kFamilyMarkers) {
    if (tokenizer.added_token(marker) >= 0) return format;
  }
  return ToolFormat::kNone;
}

void find_reasoning_markers(std::string_view source, const Tokenizer& tokenizer,
                            TemplateFacts& facts) {
  if (facts.format == ToolFormat::kHarmony) {
    facts.reasoning_begin = "<|channel|>analysis<|message|>";
    facts.reasoning_end = "<|end|>";
    return;
  }
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kMarkers = {{
      {"<think>", "</think>"},
      {"<mm:think>", "</mm:think>"},
      {"<seed:think>", "</seed:think>"},
      {"[THINK]", "[/THINK]"},
      {"<|inner_prefix|>", "<|inner_suffix|>"},
  }};
  for (const auto& [begin, end] : kMarkers) {
    const bool written = source.find(end) != std::string_view::npos;
    // Some templates leave the thoughts to the model; the vocabulary tells then.
    const bool known = tokenizer.added_token(begin) >= 0 && tokenizer.added_token(end) >= 0;
    if (!written && !known) continue;
    facts.reasoning_begin = begin;
    facts.reasoning_end = end;
    return;
  }
}

std::string thinking_argument(std::string_view source, const ProbeRender& render) {
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (source.find(name) == std::string_view::npos) continue;
    Conversation on = probe_conversation();
    on.template_arguments[name] = true;
    Conversation off = probe_conversation();
    off.template_arguments[name] = false;
    const auto with = render(on);
    const auto without = render(off);
    if (with.is_ok() && without.is_ok() && with.value() != without.value()) return name;
  }
  return "";
}

bool ends_within(const std::string& text, const TemplateFacts& facts) {
  if (facts.reasoning_begin.empty()) return false;
  // Text behind the question alone: instructions may quote the markers.
  const std::size_t question = text.rfind(kProbeQuestion);
  const std::string_view tail =
      std::string_view(text).substr(question == std::string::npos ? 0 : question);
  const std::size_t begin = tail.rfind(facts.reasoning_begin);
  const std::size_t end = tail.rfind(facts.reasoning_end);
  return begin != std::string_view::npos && (end == std::string_view::npos || end < begin);
}

Conversation with_probe_tool(Conversation conversation) {
  ToolSpec tool;
  tool.name = kProbeTool;
  tool.description = "Probes.";
  tool.parameters = {{"type", "object"},
                     {"properties", {{"value", {{"type", "string"}}}}},
                     {"required", {"value"}}};
  tool.wire = {
      {"type", "function"},
      {"function",
       {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}}}};
  conversation.tools.push_back(std::move(tool));
  return conversation;
}

}  // namespace

Conversation probe_conversation() {
  Conversation conversation;
  conversation.messages.push_back(probe_message(ChatRole::kUser, kProbeQuestion));
  return conversation;
}

Conversation probe_calls() {
  Conversation conversation = with_probe_tool(probe_conversation());
  ChatMessage answer = probe_message(ChatRole::kAssistant, "");
  answer.reasoning = kProbeThought;
  answer.calls.push_back({"call_1", std::string(kProbeTool), "{\"value\": \"v\"}"});
  conversation.messages.push_back(std::move(answer));
  ChatMessage result = probe_message(ChatRole::kTool, "r");
  result.tool_call_id = "call_1";
  result.name = kProbeTool;
  conversation.messages.push_back(std::move(result));
  return conversation;
}

TemplateFacts probe_facts(const std::string& source, const Tokenizer& tokenizer,
                          const ProbeRender& render) {
  TemplateFacts facts;
  facts.format = format_of(source);
  // Some templates leave the writing of calls to the model; the vocabulary tells then.
  if (facts.format == ToolFormat::kNone) facts.format = format_of(tokenizer);
  find_reasoning_markers(source, tokenizer, facts);
  facts.renders_tools = shows(render(with_probe_tool(probe_conversation())), kProbeTool);
  facts.renders_reasoning = shows(render(probe_calls()), kProbeThought);
  facts.thinking_argument = thinking_argument(source, render);
  const auto prompt = render(probe_conversation());
  facts.opens_reasoning = prompt.is_ok() && ends_within(prompt.value(), facts);
  return facts;
}

HistoryRules probe_history_rules(const TemplateFacts& facts, const ProbeRender& render) {
  HistoryRules rules;
  Conversation late = probe_conversation();
  late.messages.push_back(probe_message(ChatRole::kAssistant, "a"));
  late.messages.push_back(probe_message(ChatRole::kSystem, kProbeSystem));
  late.messages.push_back(probe_message(ChatRole::kUser, "b"));
  // Some templates move it to the front: it must stand behind the first question.
  const auto rendered = render(late);
  rules.late_system_to_user =
      !rendered.is_ok() || rendered.value().find(kProbeSystem) == std::string::npos ||
      rendered.value().find(kProbeSystem) < rendered.value().find(kProbeQuestion);
  Conversation alone;
  alone.messages.push_back(probe_message(ChatRole::kSystem, kProbeSystem));
  alone.messages.push_back(probe_message(ChatRole::kAssistant, "a"));
  rules.needs_user = !render(alone).is_ok();
  rules.kimi_ids = facts.format == ToolFormat::kKimi;
  rules.one_call_each = facts.format == ToolFormat::kHarmony;
  return rules;
}

}  // namespace moepack
