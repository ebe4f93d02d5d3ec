// What a layer of a model consists of: a mixer of tokens, a router and a feed-forward network, each
// of one of the kinds that are computed here. The reader of a family fills one LayerSpec per layer;
// whoever computes or counts looks once per layer which kinds it has. Sizes that all layers of a
// model share stand in ModelConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

namespace moepack {

// The values over which the RMSNorm of queries and keys is taken, before they are rotated.
enum class QueryKeyNorm : std::uint8_t {
  kPerHead,     // each head for itself; the factor is [head_dim] and serves every head
  kWholeWidth,  // all heads of a token at once; the factor is [heads * head_dim]. Not with a gate,
                // which would lie between the heads.
  kNone,
};

// The heads of a layer with full attention, and how positions rotate them.
struct HeadSizes {
  std::uint32_t heads = 0;     // of queries
  std::uint32_t kv_heads = 0;  // divides heads
  std::uint32_t head_dim = 0;
  std::uint32_t rotary_dim = 0;     // leading values of a head, which form pairs; even
  std::uint32_t rotated_pairs = 0;  // the first pairs, which positions turn; the others stay
  double rope_theta = 0;

  friend bool operator==(const HeadSizes&, const HeadSizes&) = default;
};

// Softmax attention over all tokens so far, with grouped query heads.
struct FullAttentionSpec {
  bool has_gate = false;  // q_proj holds, per head, a query and a gate for that head's output
  QueryKeyNorm norm = QueryKeyNorm::kPerHead;
  // Normed queries and keys, and values, are limited to [-clip, clip].
  std::optional<float> clip = std::nullopt;
  bool has_bias = false;         // q_proj, k_proj and v_proj add a bias
  bool has_output_bias = false;  // o_proj does
  // Each head has a logit that joins the denominator of its softmax and carries no value.
  bool has_sinks = false;
  // A token sees itself and so many less one before it; nullopt: all of them.
  std::optional<std::uint32_t> window = std::nullopt;
  // Where a layer's heads are not those that ModelConfig has for all (ModelConfig::heads_of).
  std::optional<HeadSizes> own_heads = std::nullopt;
  // What scores are multiplied with; nullopt: head_dim ^ -0.5.
  std::optional<float> score_scale = std::nullopt;
  bool values_are_keys = false;  // no v_proj: values are what k_proj gives, not normed or rotated
  bool has_value_norm = false;   // the value of each head is divided by its RMS, without a factor

  friend bool operator==(const FullAttentionSpec&, const FullAttentionSpec&) = default;
};

// Linear attention with the gated delta rule; its sizes are ModelConfig's.
struct GatedDeltaNetSpec {
  friend bool operator==(const GatedDeltaNetSpec&, const GatedDeltaNetSpec&) = default;
};

// Softmax attention whose keys and values are made of one compressed row a token (multi-head latent
// attention, arXiv 2405.04434 section 2.1); its sizes are ModelConfig's.
struct LatentAttentionSpec {
  bool has_query_rank = true;  // queries too go through a compressed row: q_a_proj, q_b_proj

  friend bool operator==(const LatentAttentionSpec&, const LatentAttentionSpec&) = default;
};

// Most groups of experts of a SigmoidRouterSpec.
constexpr std::uint32_t kMaxRouterGroups = 64;

// Softmax over all experts; the most probable are chosen.
struct SoftmaxRouterSpec {
  bool renormalise = true;  // the weights of the chosen are divided by their sum
  bool has_bias = false;    // the logits add a bias
  bool has_norm = false;    // the logits are those of an RMSNorm of its own of the hidden state
  bool has_expert_scales = false;  // weights are multiplied by a number of the expert, at last

  friend bool operator==(const SoftmaxRouterSpec&, const SoftmaxRouterSpec&) = default;
};

// The sigmoid of each logit is the expert's weight; a correction per expert is added only to choose
// (arXiv 2412.19437 section 2.1.2). Experts stand in groups of equal size, of which those with the
// highest sums of their two best are looked at.
struct SigmoidRouterSpec {
  bool renormalise = true;   // the weights of the chosen are divided by their sum plus 1e-20
  float scale = 1;           // then multiplied by this
  std::uint32_t groups = 1;  // at most kMaxRouterGroups; divides the number of experts
  std::uint32_t kept_groups = 1;

  friend bool operator==(const SigmoidRouterSpec&, const SigmoidRouterSpec&) = default;
};

// What stands between an expert's gate and up projections and its down projection.
enum class ExpertActivation : std::uint8_t {
  kSwiGlu,         // silu(gate) * up
  kClampedSwiGlu,  // gpt-oss: g = min(gate, limit), u = clamp(up, -limit, limit);
                   // g * sigmoid(1.702 g) * (u + 1)
  kGeGlu,          // gelu(gate) * up, gelu by its tanh form (arXiv 1606.08415 section 2)
};

// Routed experts, and in some families a shared expert that every token goes through.
struct ExpertsSpec {
  bool has_shared_expert = false;  // of ModelConfig::shared_expert_width, which is then not 0
  bool has_shared_gate = true;     // a gate scales the shared expert's output; false: it is added
  bool has_biases = false;         // the three projections of every expert add a bias
  ExpertActivation activation = ExpertActivation::kSwiGlu;  // of the shared expert too
  float activation_limit = 0;                               // of kClampedSwiGlu
  // The shared expert and the sum of the routed ones are two branches: the shared expert has an
  // RMSNorm of its own before it, and each branch one behind it, before the two are added.
  bool has_branch_norms = false;

  friend bool operator==(const ExpertsSpec&, const ExpertsSpec&) = default;
};

// One network for all tokens, of ModelConfig::dense_width, with kSwiGlu.
struct DenseSpec {
  friend bool operator==(const DenseSpec&, const DenseSpec&) = default;
};

using MixerSpec = std::variant<FullAttentionSpec, GatedDeltaNetSpec, LatentAttentionSpec>;
using RouterSpec = std::variant<SoftmaxRouterSpec, SigmoidRouterSpec>;  // unread with DenseSpec
using FeedForwardSpec = std::variant<ExpertsSpec, DenseSpec>;

struct LayerSpec {
  MixerSpec mixer = {};
  RouterSpec router = {};
  FeedForwardSpec feed_forward = {};
  // What the mixer gives, and what the network gives, pass an RMSNorm before they are added to the
  // hidden state.
  bool has_output_norms = false;
  bool has_output_scale = false;  // the layer's result is multiplied by a number at last

  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// The kinds of mixer by name: what a layer keeps between tokens depends on nothing else.
enum class LayerType : std::uint8_t { kLinearAttention, kFullAttention, kLatentAttention };

inline LayerType layer_type(const LayerSpec& layer) {
  if (std::holds_alternative<FullAttentionSpec>(layer.mixer)) return LayerType::kFullAttention;
  return std::holds_alternative<GatedDeltaNetSpec>(layer.mixer) ? LayerType::kLinearAttention
                                                                : LayerType::kLatentAttention;
}

// As in config.json: "full_attention".
constexpr std::string_view layer_type_name(LayerType type) {
  if (type == LayerType::kFullAttention) return "full_attention";
  return type == LayerType::kLatentAttention ? "latent_attention" : "linear_attention";
}

// Whether such a layer remembers something of every position, which truncating brings back; the
// others have a state that depends on all tokens seen.
constexpr bool keeps_positions(LayerType type) { return type != LayerType::kLinearAttention; }

inline bool has_experts(const LayerSpec& layer) {
  return std::holds_alternative<ExpertsSpec>(layer.feed_forward);
}

}  // namespace moepack
