// A chat request as the tokens that the model is given.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "runtime/chat/chat_template.h"
#include "runtime/service/answer_request.h"
#include "runtime/service/answer_service.h"
#include "runtime/service/call_memory.h"
#include "runtime/service/prompt_room.h"
#include "runtime/service/sampled_texts.h"

namespace moepack {

struct ChatPrompt {
  PromptText text;
  std::vector<std::int32_t> ids;
  std::vector<std::uint64_t> snapshots;  // TextJob::snapshots
  bool is_in_reasoning = false;          // the answer begins within thoughts
  bool may_open_reasoning = false;       // the answer itself may begin with the mark of thoughts
};

// `format`: of the calls that the model writes. Errors of the template, in its own words. Of a
// prompt with `room.tokens()` tokens or more, which does not fit, there are text and ids alone; one
// that is beyond its bytes is refused.
std::variant<ChatPrompt, Refusal> make_chat_prompt(const ChatTemplate& chat_template,
                                                   ToolFormat format, const Tokenizer& tokenizer,
                                                   const ChatRequest& request, CallMemory& calls,
                                                   SampledTexts& texts, const PromptRoom& room);

// The text and the ids of that prompt alone. Calls and texts stand there as they were sampled where
// they are remembered, unless the request wants nothing of what was kept ("cache_prompt": false).
// The errors of ChatTemplate::render and encode_prompt().
Result<PromptText> chat_text(const ChatTemplate& chat_template, ToolFormat format,
                             const ChatRequest& request, CallMemory& calls);
Result<std::vector<std::int32_t>> chat_ids(const Tokenizer& tokenizer, const ChatRequest& request,
                                           const PromptText& text, SampledTexts& texts);

// A refusal for an error of the tokenizer or a sampler's settings.
Refusal refusal_of(const Status& status);
// The same for one of ChatTemplate::render.
Refusal rendering_refusal(const Status& status);

}  // namespace moepack
