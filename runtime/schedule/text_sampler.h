// Draws the tokens of one text: sampler, filter and the probabilities that were asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "runtime/schedule/scheduler.h"

namespace moepack {

// Move-only; used by one thread.
class TextSampler {
 public:
  // Of choice `choice`: its seed is the job's + choice. The errors of Sampler::create.
  static Result<TextSampler> create(const TextJob& job, std::uint32_t choice,
                                    std::size_t vocab_limit);

  // Whether the next token is the highest logit and nothing else is wanted of the logits.
  bool takes_top() const;
  // The next token, one of `remaining` that the text may still have. Of Sampler::sample and
  // token_chances the errors.
  Result<TokenStep> draw(std::span<const float> logits, std::uint64_t remaining);
  // The same of a token that is forced, whatever its probability.
  Result<TokenStep> step_of(std::span<const float> logits, std::int32_t id) const;
  // `id` has become part of the text.
  void accept(std::int32_t id);
  std::size_t vocab_limit() const { return vocab_limit_; }

 private:
  TextSampler(Sampler sampler, std::unique_ptr<TokenFilter> filter, const TextJob& job,
              std::size_t vocab_limit);

  Sampler sampler_;
  std::unique_ptr<TokenFilter> filter_;  // may be null
  std::optional<std::uint32_t> top_logprobs_;
  bool is_plain_greedy_;
  std::size_t vocab_limit_;
};

}  // namespace moepack
