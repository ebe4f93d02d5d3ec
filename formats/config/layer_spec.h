// What a layer of a model consists of: a mixer of tokens, a router and a feed-forward network, each
// of one of the kinds that are computed here. The reader of a family fills one LayerSpec per layer;
// whoever computes or counts looks once per layer which kinds it has. Sizes that all layers of a
// model share stand in ModelConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

namespace moepack {

// The values over which the RMSNorm of queries and keys is taken, before they are rotated.
enum class QueryKeyNorm : std::uint8_t {
  kPerHead,     // each head for itself; the factor is [head_dim] and serves every head
  kWholeWidth,  // all heads of a token at once; the factor is [heads * head_dim]. Not with a gate,
                // which would lie between the heads.
};

// Softmax attention over all tokens so far, with grouped query heads.
struct FullAttentionSpec {
  bool has_gate = false;  // q_proj holds, per head, a query and a gate for that head's output
  QueryKeyNorm norm = QueryKeyNorm::kPerHead;
  // Normed queries and keys, and values, are limited to [-clip, clip].
  std::optional<float> clip = std::nullopt;

  friend bool operator==(const FullAttentionSpec&, const FullAttentionSpec&) = default;
};

// Linear attention with the gated delta rule; its sizes are ModelConfig's.
struct GatedDeltaNetSpec {
  friend bool operator==(const GatedDeltaNetSpec&, const GatedDeltaNetSpec&) = default;
};

// Softmax over all experts; the most probable are chosen.
struct SoftmaxRouterSpec {
  bool renormalise = true;  // the weights of the chosen are divided by their sum

  friend bool operator==(const SoftmaxRouterSpec&, const SoftmaxRouterSpec&) = default;
};

// Routed experts, and in some families a shared expert whose output a gate scales.
struct ExpertsSpec {
  bool has_shared_expert = false;  // of ModelConfig::shared_expert_width, which is then not 0

  friend bool operator==(const ExpertsSpec&, const ExpertsSpec&) = default;
};

using MixerSpec = std::variant<FullAttentionSpec, GatedDeltaNetSpec>;
using RouterSpec = std::variant<SoftmaxRouterSpec>;
using FeedForwardSpec = std::variant<ExpertsSpec>;

struct LayerSpec {
  MixerSpec mixer = {};
  RouterSpec router = {};
  FeedForwardSpec feed_forward = {};

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// The kinds of mixer by name: what a layer keeps between tokens depends on nothing else.
enum class LayerType : std::uint8_t { kLinearAttention, kFullAttention };

inline LayerType layer_type(const LayerSpec& layer) {
  return std::holds_alternative<FullAttentionSpec>(layer.mixer) ? LayerType::kFullAttention
                                                                : LayerType::kLinearAttention;
}

}  // namespace moepack
