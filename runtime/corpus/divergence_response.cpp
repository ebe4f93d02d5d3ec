#include "runtime/corpus/divergence_response.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "runtime/score/log_softmax.h"

namespace moepack {
namespace {

// The energies of the errors as shares of what the layer's experts add. They are about what a whole
// layer of 2 to 3 bits loses, and what a single expert of it loses.
constexpr std::array kErrorShares{0.03, 0.003};
// The first 1 / kUnscored of a window's tokens have too little context to be scored.
constexpr std::uint64_t kUnscored = 8;
// How many positions have their logits held at once.
constexpr std::size_t kPositions = 64;

class ResponseProbe {
 public:
  ResponseProbe(CorpusForward& corpus, const ModelConfig& config,
                std::span<const TokenWindow> windows, std::uint64_t tokens)
      : corpus_(corpus),
        config_(config),
        windows_(windows.begin(), windows.end()),
        originals_(windows.size()),
        tokens_(tokens),
        copies_(kErrorShares.size() * config.num_layers) {}

  // Runs one layer over all copies, and makes new copies behind it.
  Status run_layer(std::uint32_t layer) {
    const std::size_t size = tokens_ * config_.hidden_size;
    MOE_RETURN_IF_ERROR(corpus_.mix(layer, [](const ExpertInputs&) { return Status::ok(); }));
    const std::span<const float> mixed = corpus_.hidden().first(size);
    const std::vector<float> before(mixed.begin(), mixed.end());
    MOE_RETURN_IF_ERROR(corpus_.add_experts(layer, [](std::size_t) {}));
    for (std::size_t k = 0; k < kErrorShares.size(); ++k) {
      const std::size_t copy = layer * kErrorShares.size() + k;
      const std::uint64_t first = first_of(copy);
      for (std::size_t i = 0; i < originals_; ++i) {
        windows_.push_back({windows_[i].first + first, windows_[i].count});
      }
      corpus_.resume(first + tokens_, windows_);
      copies_[copy].error = disturb(kErrorShares[k], before, copy);
    }
    return Status::ok();
  }

  Result<std::vector<DivergenceResponse>> responses() {
    std::uint64_t scored = 0;
    for (std::size_t w = 0; w < originals_; ++w) {
      const std::uint64_t end = windows_[w].first + windows_[w].count;
      for (std::uint64_t at = windows_[w].first + windows_[w].count / kUnscored; at < end;
           at += kPositions) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kPositions, end - at));
        MOE_RETURN_IF_ERROR(score(at, count));
        scored += count;
      }
    }
    std::vector<DivergenceResponse> out;
    for (std::uint32_t l = 0; l < config_.num_layers; ++l) {
      std::array<Copy, 2> pair{copies_[2 * l], copies_[2 * l + 1]};
      for (Copy& copy : pair)
        copy.divergence /= static_cast<double>(std::max<std::uint64_t>(scored, 1));
      out.push_back(response_of(pair[0], pair[1]));
    }
    return out;
  }

 private:
  struct Copy {
    double error = 0;       // mean squared
    double divergence = 0;  // sum over what was scored, then its mean
  };

  std::uint64_t first_of(std::size_t copy) const { return (copy + 1) * tokens_; }

  // The response through both measured points, as far as neither term becomes negative.
  static DivergenceResponse response_of(const Copy& large, const Copy& small) {
    DivergenceResponse out;
    // Experts that add nothing lose nothing.
    if (!(small.error > 0) || !(large.divergence > 0)) return out;
    const double root = std::sqrt(large.error);
    const double here = large.divergence / large.error;
    const double there = small.divergence / small.error;
    const double slope = (there - here) / (1 / std::sqrt(small.error) - 1 / root);
    out.per_amplitude = std::clamp(slope, 0.0, here * root);
    out.per_energy = std::max(0.0, here - out.per_amplitude / root);
    return out;
  }

  // Makes a copy of the originals' hidden states with an error that has a share of the energy of
  // what the experts added to each token. The error's direction is the difference of what they
  // added to two other tokens, because errors of quantized experts, too, lie where experts write.
  // (An error that is equal in all directions would be dampened more than theirs:
  // docs/decisions.md, 24.) Gives the mean squared error.
  double disturb(double share, const std::vector<float>& before, std::size_t copy) {
    const std::size_t width = config_.hidden_size;
    const std::span<float> hidden = corpus_.hidden();
    float* out = hidden.data() + first_of(copy) * width;
    std::mt19937_64 random(copy);  // its numbers are the same everywhere
    const auto added = [&](std::size_t t, std::size_t i) {
      return static_cast<double>(hidden[t * width + i]) -
             static_cast<double>(before[t * width + i]);
    };
    std::vector<double> error(width);
    double total = 0;
    for (std::size_t t = 0; t < tokens_; ++t) {
      const std::size_t one = random() % tokens_;
      const std::size_t other =
          (one + 1 + random() % std::max<std::uint64_t>(tokens_ - 1, 1)) % tokens_;
      double energy = 0;
      double size = 0;
      for (std::size_t i = 0; i < width; ++i) {
        energy += added(t, i) * added(t, i);
        error[i] = added(one, i) - added(other, i);
        size += error[i] * error[i];
      }
      const double scale = size > 0 ? std::sqrt(share * energy / size) : 0;
      for (std::size_t i = 0; i < width; ++i) {
        out[t * width + i] =
            static_cast<float>(static_cast<double>(hidden[t * width + i]) + scale * error[i]);
      }
      total += scale * scale * size;
    }
    return total / static_cast<double>(tokens_);
  }

  // Adds the divergences of `count` positions of the originals, from `first`.
  Status score(std::uint64_t first, std::size_t count) {
    MOE_RETURN_IF_ERROR(corpus_.logits(first, count, base_));
    std::vector<LogProbs> base(count);
    MOE_RETURN_IF_ERROR(normalize(base_, base));
    std::vector<LogProbs> here(count);
    std::vector<double> divergences(count);
    for (std::size_t copy = 0; copy < copies_.size(); ++copy) {
      MOE_RETURN_IF_ERROR(corpus_.logits(first + first_of(copy), count, logits_));
      MOE_RETURN_IF_ERROR(normalize(logits_, here));
      corpus_.for_each(count, [&](std::size_t i) {
        divergences[i] = kl_divergence(base[i], kNoFloor, here[i]);
      });
      for (const double divergence : divergences) copies_[copy].divergence += divergence;
    }
    return Status::ok();
  }

  // The log-probabilities of positions' logits, [out.size(), V].
  Status normalize(std::span<const float> logits, std::span<LogProbs> out) {
    const std::size_t vocab = config_.vocab_size;
    std::vector<Status> statuses(out.size(), Status::ok());
    corpus_.for_each(out.size(), [&](std::size_t i) {
      const std::span<const float> row = logits.subspan(i * vocab, vocab);
      const Result<LogNormalizer> normalizer = log_normalizer(row);
      statuses[i] = normalizer.status();
      if (normalizer.is_ok()) out[i] = {row, normalizer.value().log_z};
    });
    for (Status& status : statuses) MOE_RETURN_IF_ERROR(std::move(status));
    return Status::ok();
  }

  CorpusForward& corpus_;
  const ModelConfig& config_;
  std::vector<TokenWindow> windows_;  // of the originals, then of the copies
  std::size_t originals_;             // windows
  std::uint64_t tokens_;              // of the originals
  std::vector<Copy> copies_;          // two a layer
  std::vector<float> base_;
  std::vector<float> logits_;
};

}  // namespace

std::uint64_t response_tokens(std::uint64_t num_layers, std::uint64_t tokens) {
  return tokens * (1 + kErrorShares.size() * num_layers);
}

Result<std::vector<DivergenceResponse>> measure_divergence_response(
    const ModelDir& model, const CorpusOptions& options, std::span<const std::int32_t> tokens,
    std::span<const TokenWindow> windows, const std::function<void(std::uint32_t)>& progress) {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusForward> corpus,
                       CorpusForward::open(model, options));
  MOE_RETURN_IF_ERROR(corpus->start(tokens, {windows.begin(), windows.end()}));
  ResponseProbe probe(*corpus, model.config, windows, tokens.size());
  for (std::uint32_t layer = 0; layer < model.config.num_layers; ++layer) {
    MOE_RETURN_IF_ERROR(probe.run_layer(layer));
    if (progress) progress(layer + 1);
  }
  return probe.responses();
}

}  // namespace moepack
