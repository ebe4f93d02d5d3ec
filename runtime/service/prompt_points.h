// Where in a prompt a state is worth keeping: what the next request of a conversation will have in
// common with this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "runtime/chat/conversation.h"
#include "runtime/chat/prompt_text.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

using ConversationRenderer = std::function<Result<PromptText>(const Conversation&)>;

// Lengths of beginnings of `text`, the rendering of `conversation`, in bytes, ascending: the end of
// the system's part, of everything before the last question of the user and of everything before
// the generation prompt, and of the messages that `hints` names. Points that cannot be found are
// left out.
std::vector<std::size_t> prompt_points(const Conversation& conversation, std::string_view text,
                                       std::span<const std::size_t> hints,
                                       const ConversationRenderer& render);

// The same as numbers of tokens: of the last token's end at or before each point. Without those of
// no token. Nothing where the ids do not spell `text`.
std::vector<std::uint64_t> token_points(const Tokenizer& tokenizer,
                                        std::span<const std::int32_t> ids, std::string_view text,
                                        std::span<const std::size_t> points);

// The part of `text` that asks for the answer: what it has beyond the rendering without a
// generation prompt.
std::string_view generation_part(const Conversation& conversation, std::string_view text,
                                 const ConversationRenderer& render);

}  // namespace moepack
