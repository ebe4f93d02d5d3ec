// Draws the next token from logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// Names, order and defaults are llama.cpp's: top-k, then top-p, then min-p, then temperature, then
// the draw. Commands that want greedy decoding set temperature to 0.
struct SamplerOptions {
  float temperature = 0.8F;  // logits are divided by it; 0 or less: always the highest logit
  std::int32_t top_k = 40;   // the k highest logits stay; 0 or less: all
  float top_p = 0.95F;       // the fewest tokens whose probabilities reach it stay; >= 1: all
  float min_p = 0.05F;       // tokens below min_p * (highest probability) go; <= 0: none does
  std::uint64_t seed = 0;
};

// Reproducible: one seed and one series of logits give one series of tokens (the generator is the
// one the C++ standard pins down, and no standard distribution is used). Equal logits rank by id,
// lowest first. Not thread-safe: one sampler per sequence.
class Sampler {
 public:
  // Ids >= vocab_limit are never drawn: the tokenizer's size, because a model's logits may have
  // padding rows behind it. kInvalidArgument for options that are not finite or a limit of 0.
  static Result<Sampler> create(const SamplerOptions& options, std::size_t vocab_limit);

  // logits: [vocab_size]. kCorrupt, with the id, for a NaN or +inf below the limit, and when no
  // logit is finite.
  Result<std::int32_t> sample(std::span<const float> logits);

  // Starts the random series again from the seed.
  void reset() { random_.seed(options_.seed); }

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
  };
  Sampler(const SamplerOptions& options, std::size_t vocab_limit)
      : options_(options), vocab_limit_(vocab_limit), random_(options.seed) {}

  Status collect(std::span<const float> logits);
  void keep_top_k();
  void keep_top_p_and_min_p();
  std::int32_t draw();

  SamplerOptions options_;
  std::size_t vocab_limit_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;  // reused between calls
};

}  // namespace moepack
