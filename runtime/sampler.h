// Draws the next token from logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "formats/base/status.h"
#include "runtime/score/ranked_logits.h"
#include "runtime/token_filter.h"

namespace moepack {

struct LogitBias {
  std::int32_t id = 0;
  // Added to the logit; -infinity: never drawn, unless a filter allows nothing else.
  float bias = 0;
};

// Names, order and defaults are llama.cpp's: biases, penalties, what a filter forbids, then top-k,
// typical-p, top-p, min-p, temperature and the draw. Commands that want greedy decoding set
// temperature to 0.
struct SamplerOptions {
  float temperature = 0.8F;  // logits are divided by it; 0 or less: always the highest logit
  std::int32_t top_k = 40;   // the k highest logits stay; 0 or less: all
  float top_p = 0.95F;       // the fewest tokens whose probabilities reach it stay; >= 1: all
  float min_p = 0.05F;       // tokens below min_p * (highest probability) go; <= 0: none does
  std::uint64_t seed = 0;
  // The tokens whose surprise is nearest to the entropy stay, as many as reach it (Meister et al.
  // 2022); >= 1: all.
  float typical_p = 1.0F;
  // A positive logit of a token among the last `repeat_last_n` of the text, prompt included, is
  // divided by it, one below 0 multiplied (Keskar et al. 2019). 1: unchanged.
  float repetition_penalty = 1.0F;
  std::int32_t repeat_last_n = 64;  // -1: all; 0: none
  // Of a token that was accepted n > 0 times, n * frequency + presence is subtracted, as OpenAI
  // defines them.
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::vector<LogitBias> logit_bias = {};  // of one id, all are added
};

// Reproducible: one seed and one series of logits give one series of tokens (the generator is the
// one the C++ standard pins down, and no standard distribution is used). Equal logits rank by id,
// lowest first. Not thread-safe: one sampler per sequence.
class Sampler {
 public:
  // Ids >= vocab_limit are never drawn: the tokenizer's size, because a model's logits may have
  // padding rows behind it. kInvalidArgument for options that are not finite, a penalty of
  // repetition that is not positive, a bias of an id that does not exist and a limit of 0.
  static Result<Sampler> create(const SamplerOptions& options, std::size_t vocab_limit);

  // logits: [vocab_size]. kCorrupt, with the id, for a NaN or +inf below the limit, and when no
  // logit is finite.
  // A filter (not kept, may be null) forbids tokens before any cut is made: the result is that of
  // masking the logits first. The whole vocabulary is masked only where that could matter, that is
  // where one of the k highest logits (greedy: the highest) is forbidden, or where top_k is off.
  // The filter is asked and not told: accept() of both is the caller's.
  Result<std::int32_t> sample(std::span<const float> logits, TokenFilter* filter = nullptr);

  // Before anything is accepted: what the text goes on from. The penalty of repetition counts it,
  // as in llama.cpp and in transformers; those of frequency and presence do not.
  void follow(std::span<const std::int32_t> prompt);
  // `id` is part of the text: penalties count it.
  void accept(std::int32_t id);

 private:
  Sampler(const SamplerOptions& options, std::size_t vocab_limit)
      : options_(options), vocab_limit_(vocab_limit), random_(options.seed) {}

  std::span<const float> adjusted(std::span<const float> logits, bool is_filtered);
  void penalise(std::span<float> logits) const;
  void note_recent(std::int32_t id);
  Status rank(std::span<const float> logits, TokenFilter* filter);
  Status collect(std::span<const float> logits);
  bool may_keep(TokenFilter& filter) const;
  void keep_typical();
  void keep_top_p_and_min_p();
  double weight_sum(float highest, double temperature) const;
  float highest_logit_left() const;
  const RankedLogit& ranked(std::size_t place);
  std::int32_t draw();

  SamplerOptions options_;
  std::size_t vocab_limit_;
  std::mt19937_64 random_;
  std::unordered_map<std::int32_t, std::uint32_t> accepted_;  // how often
  std::unordered_map<std::int32_t, std::uint32_t> recent_;    // how often in the window
  std::deque<std::int32_t> window_;
  std::vector<RankedLogit> candidates_;  // reused between calls
  std::size_t ranked_ = 0;               // of them, the first so many lie in order before the rest
  std::vector<float> changed_;           // logits after biases and penalties, or masked
};

}  // namespace moepack
