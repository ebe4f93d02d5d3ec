#include "runtime/service/prompt_room.h"

#include <algorithm>
#include <string>

namespace moepack {
namespace {

constexpr std::uint64_t kMostShrinking = 4;
constexpr std::uint64_t kLeastBytes = std::uint64_t{1} << 16U;
constexpr std::uint64_t kLeastToldBytes = std::uint64_t{16} << 20U;
constexpr std::uint64_t kToldBytesPerToken = 8;

Refusal context_refusal(const std::string& what, std::uint64_t tokens, std::uint64_t context) {
  Refusal refusal;
  refusal.kind = Refusal::Kind::kContextLength;
  refusal.message = "the prompt has " + what + ", more than the maximum context length of " +
                    std::to_string(context) + " leaves room for";
  refusal.prompt_tokens = tokens;
  refusal.context = context;
  return refusal;
}

}  // namespace

PromptRoom::PromptRoom(const Tokenizer& tokenizer, std::uint64_t context) : context_(context) {
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    longest_token_ = std::max(longest_token_, tokenizer.bytes(id).size());
  }
}

std::optional<Refusal> PromptRoom::refuse_tokens(std::size_t tokens) const {
  if (tokens < context_) return std::nullopt;
  return context_refusal(std::to_string(tokens) + " tokens", tokens, context_);
}

std::optional<Refusal> PromptRoom::refuse_bytes(std::size_t bytes) const {
  const std::uint64_t most = std::max(kLeastBytes, kMostShrinking * context_ * longest_token_);
  if (bytes <= std::min(most, most_bytes())) return std::nullopt;
  const std::uint64_t tokens = std::max<std::uint64_t>(bytes / longest_token_, context_);
  return context_refusal(std::to_string(bytes) + " bytes", tokens, context_);
}

std::uint64_t PromptRoom::most_bytes() const {
  return std::max(kLeastToldBytes, kToldBytesPerToken * context_);
}

std::optional<Refusal> PromptRoom::refuse_told(std::size_t bytes) const {
  if (bytes <= most_bytes()) return std::nullopt;
  Refusal refusal;
  refusal.message = "the text has " + std::to_string(bytes) + " bytes; at most " +
                    std::to_string(most_bytes()) + " are turned into tokens";
  return refusal;
}

}  // namespace moepack
