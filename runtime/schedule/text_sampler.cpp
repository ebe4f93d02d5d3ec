#include "runtime/schedule/text_sampler.h"

#include <algorithm>
#include <utility>

namespace moepack {
namespace {

bool is_plain_greedy(const SamplerOptions& options) {
  return options.temperature <= 0 && options.repetition_penalty == 1 &&
         options.frequency_penalty == 0 && options.presence_penalty == 0 &&
         options.logit_bias.empty();
}

}  // namespace

TextSampler::TextSampler(Sampler sampler, std::unique_ptr<TokenFilter> filter, const TextJob& job,
                         std::size_t vocab_limit)
    : sampler_(std::move(sampler)),
      filter_(std::move(filter)),
      top_logprobs_(job.top_logprobs),
      is_plain_greedy_(is_plain_greedy(job.sampling)),
      vocab_limit_(vocab_limit) {}

Result<TextSampler> TextSampler::create(const TextJob& job, std::uint32_t choice,
                                        std::size_t vocab_limit) {
  SamplerOptions options = job.sampling;
  options.seed += choice;
  MOE_ASSIGN_OR_RETURN(Sampler sampler, Sampler::create(options, vocab_limit));
  sampler.follow(job.prompt);
  return TextSampler(std::move(sampler), job.make_filter ? job.make_filter() : nullptr, job,
                     vocab_limit);
}

bool TextSampler::takes_top() const {
  return is_plain_greedy_ && !top_logprobs_.has_value() &&
         (filter_ == nullptr || !filter_->is_active());
}

Result<TokenStep> TextSampler::draw(std::span<const float> logits, std::uint64_t remaining) {
  if (filter_ != nullptr) filter_->set_remaining(remaining);
  TokenFilter* const filter = filter_ != nullptr && filter_->is_active() ? filter_.get() : nullptr;
  MOE_ASSIGN_OR_RETURN(const std::int32_t id, sampler_.sample(logits, filter));
  return step_of(logits, id);
}

Result<TokenStep> TextSampler::step_of(std::span<const float> logits, std::int32_t id) const {
  if (!top_logprobs_.has_value()) return TokenStep{.token = {.id = id}, .top = {}};
  return token_chances(logits.first(std::min(logits.size(), vocab_limit_)), id, *top_logprobs_);
}

void TextSampler::accept(std::int32_t id) {
  sampler_.accept(id);
  if (filter_ != nullptr) filter_->accept(id);
}

}  // namespace moepack
