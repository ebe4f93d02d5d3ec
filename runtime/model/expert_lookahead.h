// Which experts the next layer will probably use, read while this layer still computes: the disk
// has nothing to do while mixers and the head are computed otherwise.
//
// What is expected changes no result: the next layer asks for what its own router chooses, and
// finds some of it in memory or on its way. A wrong guess costs the time of its read.
//
// Few tokens: the next layer's router is run on this layer's residual stream before its experts are
// added (as Eliseev and Mazur, arXiv 2312.17238, section 3.2, do). Many tokens: a prompt uses
// nearly all experts, in the order of their ids, so those with the lowest ids are read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/config/model_config.h"
#include "runtime/model/activations.h"
#include "runtime/model/compute.h"
#include "runtime/model/lookahead_trial.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/router.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// Experts that are read ahead for one layer at most, where `per_token` are for each of few tokens.
inline std::uint32_t most_ahead(std::uint32_t per_token) {
  return per_token * static_cast<std::uint32_t>(kLookaheadRows);
}

// What is tried where not all experts fit into memory: three eighths of the experts of a token, of
// which a trained and a random model used four fifths (docs/decisions.md, 51).
constexpr std::uint32_t automatic_lookahead(std::uint32_t experts_per_token) {
  return experts_per_token * 3 / 8;
}

// One thread at a time calls it. Its batches end before the store does.
class ExpertLookahead {
 public:
  // `config`, `scratch` and `store` outlive the object. per_token 0: nothing is read ahead.
  // `is_tried`: of few tokens only while it pays (lookahead_trial.h).
  ExpertLookahead(const ModelConfig& config, Activations& scratch, ExpertStore& store,
                  std::uint32_t per_token, bool is_tried);

  // A pass over `tokens` begins; it took `seconds`.
  void begin_pass(std::size_t tokens);
  void end_pass(std::size_t tokens, double seconds);

  // Notes what layer `index`, whose weights are `next`, will probably use for these rows of
  // `hidden` [tokens, H], the residual stream after the mixer of the layer before.
  void expect(Compute& compute, const LayerWeights& next, std::uint32_t index,
              std::span<const RowRange> rows, const float* hidden);
  // Starts to read what was expected and is not in memory: once for each expect(), and nothing
  // where the cache has no room now.
  void start();
  // Layer `index` has used what it needs: what was read ahead for it may leave the cache.
  void release(std::uint32_t index);
  // The batch of tokens ended early.
  void release_all();

 private:
  void expect_of_router(Compute& compute, const LayerWeights& next, std::span<const RowRange> rows,
                        const float* hidden);

  const ModelConfig& config_;
  Activations& scratch_;
  ExpertStore& store_;
  std::uint32_t most_;  // experts of a layer
  std::optional<LookaheadTrial> trial_;
  bool is_on_ = true;                   // in this pass
  std::uint32_t layer_ = 0;             // that was expected last
  std::vector<std::uint32_t> experts_;  // of it; empty where nothing is to be started
  std::vector<Assignment> chosen_;      // of a row
  std::vector<float> probabilities_;    // [experts]
  // Of the layer that computes and of the next one: by the layer's parity.
  std::array<std::optional<ExpertStore::Batch>, 2> batches_;
};

}  // namespace moepack
