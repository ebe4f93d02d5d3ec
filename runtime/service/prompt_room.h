// Which texts are turned into tokens at all: a word that does not end takes some fifteen bytes of
// memory for each of its own, whatever becomes of the prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/service/answer_service.h"
#include "runtime/tokenizer/tokenizer.h"

namespace moepack {

// Immutable; any thread.
class PromptRoom {
 public:
  // `context`: tokens of a sequence.
  PromptRoom(const Tokenizer& tokenizer, std::uint64_t context);
  PromptRoom() = default;

  std::uint64_t tokens() const { return context_; }
  // A prompt of so many tokens that leaves no room for an answer.
  std::optional<Refusal> refuse_tokens(std::size_t tokens) const;
  // A text that cannot be such a prompt: it is longer than the longest token as often as the
  // context has room, several times over, since normalizing makes some texts shorter.
  std::optional<Refusal> refuse_bytes(std::size_t bytes) const;
  // Of any other text: more than most_bytes().
  std::optional<Refusal> refuse_told(std::size_t bytes) const;
  // 16 MiB, or eight for each token of a larger context.
  std::uint64_t most_bytes() const;

 private:
  std::uint64_t context_ = 0;
  std::size_t longest_token_ = 1;  // bytes
};

}  // namespace moepack
