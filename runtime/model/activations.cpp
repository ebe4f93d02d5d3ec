#include "runtime/model/activations.h"

#include <algorithm>
#include <string>

#include "formats/base/bytes.h"
#include "runtime/model/byte_counts.h"
#include "runtime/model/code_kernels.h"
#include "runtime/model/delta_block.h"
#include "runtime/model/kernels.h"
#include "runtime/model/layer_state.h"

namespace moepack {
namespace {

constexpr std::uint64_t kActivationAlignment = 64;
// What routing and grouping allocate on the way, per use of an expert, per expert, and per
// kMatmulRows rows of a group, of which a task has four times as many or more; lists that grow may
// hold three times their size for a moment.
constexpr std::uint64_t kRoutingBytesPerUse = 3 * sizeof(Assignment);
constexpr std::uint64_t kRoutingBytesPerExpert = 512;
constexpr std::uint64_t kRoutingBytesPerRows = 3 * 24;

bool has_latent(const ModelConfig& c) {
  return std::any_of(c.layers.begin(), c.layers.end(), [](const LayerSpec& layer) {
    return layer_type(layer) == LayerType::kLatentAttention;
  });
}

bool has_branches(const ModelConfig& c) {
  return std::any_of(c.layers.begin(), c.layers.end(), [](const LayerSpec& layer) {
    const auto* experts = std::get_if<ExpertsSpec>(&layer.feed_forward);
    return experts != nullptr && experts->has_branch_norms;
  });
}

// Of heads with full attention, the largest that a layer has.
struct WidestHeads {
  std::uint64_t queries = 0;  // values of all query heads of a token
  std::uint64_t keys = 0;     // of its keys, and of its values
  std::uint64_t kv_heads = 0;
  std::uint64_t rotary_dim = 0;
};

// Heads with full attention; those of the model where it says nothing of layers.
std::vector<HeadSizes> full_heads(const ModelConfig& c) {
  std::vector<HeadSizes> kinds = c.head_kinds();
  if (kinds.empty() && !has_latent(c)) kinds.push_back(c.heads_of({}));
  return kinds;
}

WidestHeads widest_heads(const ModelConfig& c) {
  WidestHeads widest{.queries = std::uint64_t{c.num_heads} * c.head_dim,
                     .rotary_dim = c.rotary_dim};
  for (const HeadSizes& heads : full_heads(c)) {
    widest.queries = std::max(widest.queries, std::uint64_t{heads.heads} * heads.head_dim);
    widest.keys = std::max(widest.keys, std::uint64_t{heads.kv_heads} * heads.head_dim);
    widest.kv_heads = std::max<std::uint64_t>(widest.kv_heads, heads.kv_heads);
    widest.rotary_dim = std::max<std::uint64_t>(widest.rotary_dim, heads.rotary_dim);
  }
  return widest;
}

// What the shared expert and dense layers have between them.
std::uint64_t shared_width(const ModelConfig& c) {
  return std::max(c.shared_expert_width, c.dense_width);
}

// The widest input of a product.
std::uint64_t widest_input(const ModelConfig& c) {
  return std::max({std::uint64_t{c.hidden_size}, std::uint64_t{c.expert_width}, shared_width(c),
                   widest_heads(c).queries, std::uint64_t{c.query_rank}, std::uint64_t{c.kv_rank},
                   std::uint64_t{c.num_heads} * c.value_dim,
                   std::uint64_t{c.linear_value_heads} * c.linear_value_dim});
}

std::uint64_t routing_bytes(const ModelConfig& c, const ActivationLimits& limits) {
  const std::uint64_t uses = capped_product(limits.tokens, c.experts_per_token);
  const std::uint64_t groups = std::min<std::uint64_t>(c.num_experts, uses);
  const std::uint64_t row_groups = capped_product(
      groups, div_up(std::max<std::uint64_t>(c.hidden_size, c.expert_width), kMatmulRows));
  std::uint64_t bytes = capped_product(uses, kRoutingBytesPerUse);
  bytes = capped_sum(bytes, capped_product(c.num_experts, kRoutingBytesPerExpert));
  return capped_sum(bytes, capped_product(row_groups, kRoutingBytesPerRows));
}

}  // namespace

// Walks through all buffers in order. Without memory it adds up their bytes, with memory it also
// says where each lies.
struct ActivationLayout {
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;

  template <typename T>
  void take(std::span<T>& buffer, std::uint64_t rows, std::uint64_t width) {
    const std::uint64_t count = capped_product(rows, width);
    if (memory != nullptr) buffer = {reinterpret_cast<T*>(memory + bytes), count};
    const std::uint64_t size = capped_product(count, sizeof(T));
    bytes = capped_sum(bytes, align_up(size, kActivationAlignment));
  }

  // Full and latent attention share what both need; layers of one kind are computed at a time.
  void take_attention(Activations& a, const ModelConfig& c, const ActivationLimits& limits) {
    const bool latent = has_latent(c);
    const std::vector<HeadSizes> kinds = full_heads(c);
    const bool full = !kinds.empty();
    const WidestHeads widest = widest_heads(c);
    const AttentionShape rows = latent ? latent_attention_shape(c) : AttentionShape{};
    const std::uint64_t values = latent ? std::uint64_t{c.num_heads} * c.value_dim : 0;
    take(a.query_gate, limits.tokens, full ? 2 * widest.queries : widest.queries);
    take(a.keys, limits.tokens, std::max<std::uint64_t>(widest.keys, rows.key_dim));
    take(a.values, limits.tokens, widest.keys);
    take(a.attended, limits.tokens, full ? std::max(widest.queries, values) : values);
    std::uint64_t scores = capped_product(limits.threads, limits.context);
    const auto add_workspace = [&](const AttentionShape& shape) {
      scores = std::max(scores, attention_workspace(shape, limits.context).floats(limits.threads));
    };
    for (const HeadSizes& heads : kinds) add_workspace(full_attention_shape(heads));
    if (latent) add_workspace(rows);
    take(a.scores, 1, scores);
    take(a.attention_tiles, limits.tokens, full ? widest.kv_heads : rows.kv_heads);
    take(a.rotation, limits.threads, widest.rotary_dim);
    take(a.latent_queries, limits.tokens, rows.heads * rows.key_dim);
    take(a.query_down, limits.tokens, latent ? c.query_rank : 0);
    take(a.latent_up, limits.threads, latent ? kLatentRows * std::uint64_t{c.kv_rank} : 0);
  }

  void take_delta(Activations& a, const ModelConfig& c, const ActivationLimits& limits) {
    const std::uint64_t tokens = limits.tokens;
    const std::uint64_t value = std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
    take(a.delta_raw, tokens, conv_channels(c));
    take(a.delta_qkv, tokens, conv_channels(c));
    take(a.delta_z, tokens, value);
    take(a.delta_b, tokens, c.linear_value_heads);
    take(a.delta_a, tokens, c.linear_value_heads);
    take(a.delta_mixed, tokens, value);
    const bool has_heads = c.linear_value_heads != 0;
    take(a.delta_block, has_heads ? limits.threads : 0,
         delta_block_floats(c.linear_key_dim, c.linear_value_dim));
  }

  void take_experts(Activations& a, const ModelConfig& c, std::uint64_t tokens) {
    const std::uint64_t uses = capped_product(tokens, c.experts_per_token);
    take(a.router_logits, tokens, c.num_experts);
    take(a.ahead_normed, std::min<std::uint64_t>(tokens, kLookaheadRows), c.hidden_size);
    take(a.ahead_logits, std::min<std::uint64_t>(tokens, kLookaheadRows), c.num_experts);
    take(a.sorted, uses, 1);
    take(a.place_of, uses, 1);
    take(a.groups, std::min<std::uint64_t>(c.num_experts, uses), 1);
    take(a.gathered, uses, c.hidden_size);
    take(a.gate, uses, c.expert_width);
    take(a.up, uses, c.expert_width);
    take(a.results, uses, c.hidden_size);
    take(a.shared_gate, tokens, shared_width(c));
    take(a.shared_up, tokens, shared_width(c));
    take(a.shared_out, shared_width(c) == 0 ? 0 : tokens, c.hidden_size);
    take(a.shared_weight, tokens, 1);
  }

  void take_blocks(Activations& a, const ModelConfig& c, const ActivationLimits& limits) {
    const std::uint64_t tokens = std::max(limits.tokens, limits.logit_rows);
    const std::uint64_t uses = capped_product(tokens, c.experts_per_token);
    const auto blocks = [&](std::uint64_t cols) {
      return cols == 0 ? 0 : token_stride(cols, input_digits(limits.activations));
    };
    take(a.input_blocks, tokens, blocks(widest_input(c)));
    take(a.input_rows, tokens, 1);
    take(a.own_input_blocks, limits.threads, own_blocks(input_digits(limits.activations)));
    take(a.gathered_rows, uses, 1);
    take(a.expert_blocks, uses, blocks(c.expert_width));
    take(a.expert_rows, uses, 1);
    take(a.shared_blocks, tokens, blocks(shared_width(c)));
    take(a.shared_rows, tokens, 1);
    const std::uint64_t branches = has_branches(c) ? tokens : 0;
    take(a.branch_blocks, branches, blocks(c.hidden_size));
    take(a.branch_rows, branches, 1);
    const std::uint64_t latent = has_latent(c) ? capped_product(limits.threads, tokens) : 0;
    take(a.latent_blocks, latent, blocks(c.kv_rank));
    take(a.latent_rows, latent, 1);
  }

  void take_all(Activations& a, const ModelConfig& c, const ActivationLimits& limits) {
    take(a.hidden, limits.logit_rows == 0 ? 0 : limits.tokens, c.hidden_size);
    take(a.normed, std::max(limits.tokens, limits.logit_rows), c.hidden_size);
    take(a.mixed, limits.tokens, c.hidden_size);
    take(a.logits, limits.logit_rows, c.vocab_size);
    take_attention(a, c, limits);
    take_delta(a, c, limits);
    take_experts(a, c, limits.tokens);
    if (limits.activations != ActivationType::kFloat32) take_blocks(a, c, limits);
    take(a.matmul_scratch, limits.threads, matmul_scratch_floats(widest_input(c)));
  }

  static Result<Activations> create(const ModelConfig& config, const ActivationLimits& limits) {
    Activations activations;
    ActivationLayout sizes;
    sizes.take_all(activations, config, limits);
    if (sizes.bytes >= kTooManyBytes) {
      return invalid_argument("the activations of " + std::to_string(limits.tokens) +
                                  " tokens at once in a context of " +
                                  std::to_string(limits.context) + " fit no memory",
                              "give a smaller --chunk or -c");
    }
    MOE_ASSIGN_OR_RETURN(activations.memory_,
                         AlignedBuffer::allocate(sizes.bytes, kActivationAlignment));
    activations.context_ = limits.context;
    activations.digits_ = input_digits(limits.activations);
    ActivationLayout places;
    places.memory = activations.memory_.data();
    places.take_all(activations, config, limits);
    std::fill(activations.matmul_scratch.begin(), activations.matmul_scratch.end(), 0.0F);
    return activations;
  }

  static std::uint64_t bytes_of(const ModelConfig& config, const ActivationLimits& limits) {
    Activations unplaced;
    ActivationLayout sizes;
    sizes.take_all(unplaced, config, limits);
    return capped_sum(sizes.bytes, routing_bytes(config, limits));
  }
};

Result<Activations> Activations::create(const ModelConfig& config, const ActivationLimits& limits) {
  return ActivationLayout::create(config, limits);
}

std::uint64_t activation_bytes(const ModelConfig& config, const ActivationLimits& limits) {
  return ActivationLayout::bytes_of(config, limits);
}

}  // namespace moepack
