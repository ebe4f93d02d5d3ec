#include "runtime/service/chat_prompt.h"

#include <string_view>
#include <utility>

#include "runtime/service/prompt_points.h"

namespace moepack {
namespace {

// Whether the last marker of thoughts in `part` opens them.
bool ends_in_reasoning(std::string_view part, const TemplateFacts& facts) {
  if (facts.reasoning_begin.empty()) return false;
  const std::size_t begin = part.rfind(facts.reasoning_begin);
  if (begin == std::string_view::npos) return false;
  const std::size_t end = part.rfind(facts.reasoning_end);
  return end == std::string_view::npos || end < begin;
}

// Whether a text behind `part`, which begins the answer, may open thoughts: where the template has
// opened or closed them, or the request forbids them, it may not. Harmony's thoughts are a channel.
bool may_open_reasoning(std::string_view part, const ChatRequest& request,
                        const TemplateFacts& facts, ToolFormat format) {
  if (part.empty() || facts.reasoning_begin.empty() || format == ToolFormat::kHarmony) {
    return false;
  }
  return request.thinks.value_or(true) &&
         part.find(facts.reasoning_begin) == std::string_view::npos &&
         part.find(facts.reasoning_end) == std::string_view::npos;
}

// The conversation with what the request says about thinking told to the template.
Conversation with_thinking(const ChatTemplate& chat_template, const ChatRequest& request) {
  Conversation conversation = request.conversation;
  const std::string& argument = chat_template.facts().thinking_argument;
  if (request.thinks.has_value() && !argument.empty()) {
    conversation.template_arguments[argument] = *request.thinks;
  }
  return conversation;
}

Result<PromptText> render_part(const ChatTemplate& chat_template, ToolFormat format,
                               const ChatRequest& request, const Conversation& part,
                               CallMemory& calls) {
  MOE_ASSIGN_OR_RETURN(PromptText text, chat_template.render(part));
  if (!request.options.reuses_states) return text;
  return restore_calls(text, part, format, calls);
}

}  // namespace

Result<PromptText> chat_text(const ChatTemplate& chat_template, ToolFormat format,
                             const ChatRequest& request, CallMemory& calls) {
  return render_part(chat_template, format, request, with_thinking(chat_template, request), calls);
}

Result<std::vector<std::int32_t>> chat_ids(const Tokenizer& tokenizer, const ChatRequest& request,
                                           const PromptText& text, SampledTexts& texts) {
  if (!request.options.reuses_states) return encode_prompt(tokenizer, text);
  return texts.encode(tokenizer, text);
}

Refusal rendering_refusal(const Status& status) {
  Refusal refusal = refusal_of(status);
  // The template's limits are met by conversations that are too large or too deep, and what the
  // interpreter does not know by what is in them: the probes at the start were rendered.
  if (status.code() == StatusCode::kUnsupported) refusal.kind = Refusal::Kind::kInvalid;
  return refusal;
}

Refusal refusal_of(const Status& status) {
  Refusal refusal;
  refusal.kind = status.code() == StatusCode::kInvalidArgument ? Refusal::Kind::kInvalid
                                                               : Refusal::Kind::kInternal;
  refusal.message = status.message();
  return refusal;
}

std::variant<ChatPrompt, Refusal> make_chat_prompt(const ChatTemplate& chat_template,
                                                   ToolFormat format, const Tokenizer& tokenizer,
                                                   const ChatRequest& request, CallMemory& calls,
                                                   SampledTexts& texts, const PromptRoom& room) {
  const TemplateFacts& facts = chat_template.facts();
  const Conversation conversation = with_thinking(chat_template, request);
  const ConversationRenderer render = [&](const Conversation& part) {
    return render_part(chat_template, format, request, part, calls);
  };
  Result<PromptText> prompt = render(conversation);
  if (!prompt.is_ok()) return rendering_refusal(prompt.status());
  if (auto refusal = room.refuse_bytes(prompt.value().text.size())) return *std::move(refusal);
  Result<std::vector<std::int32_t>> ids = chat_ids(tokenizer, request, prompt.value(), texts);
  if (!ids.is_ok()) return refusal_of(ids.status());
  ChatPrompt made;
  made.text = std::move(prompt).value();
  made.ids = std::move(ids).value();
  // The points take several renderings; a prompt that does not fit has no use for them.
  if (made.ids.size() >= room.tokens()) return made;
  const std::string_view text = made.text.text;
  made.snapshots = token_points(tokenizer, made.ids, text,
                                prompt_points(conversation, text, request.cache_hints, render));
  const std::string_view part = generation_part(conversation, text, render);
  made.is_in_reasoning = ends_in_reasoning(part, facts);
  made.may_open_reasoning = may_open_reasoning(part, request, facts, format);
  return made;
}

}  // namespace moepack
