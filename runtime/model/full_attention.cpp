#include "runtime/model/full_attention.h"

#include <algorithm>
#include <cmath>

namespace moepack {
namespace {

// Into [-bound, bound], in place.
void limit(float bound, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i) values[i] = std::clamp(values[i], -bound, bound);
}

}  // namespace

FullAttention::FullAttention(const ModelConfig& config, std::size_t max_tokens,
                             std::uint64_t context, std::size_t threads)
    : config_(config) {
  const std::size_t half = config.rotary_dim / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / config.rotary_dim;
    inverse_frequency_.push_back(static_cast<float>(std::pow(config.rope_theta, -exponent)));
  }
  const std::size_t width = std::size_t{config.num_heads} * config.head_dim;
  query_gate_.resize(max_tokens * 2 * width);
  mixed_.resize(max_tokens * width);
  scores_.resize(threads);
  for (std::vector<float>& scores : scores_) scores.resize(context);
}

// Rotates pairs (i, i + rotary_dim / 2) of one head in place. The angle is a float32 product, as
// the models were trained with.
void FullAttention::rotate(float* head, std::size_t position) const {
  const std::size_t half = inverse_frequency_.size();
  for (std::size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * inverse_frequency_[i];
    const float c = std::cos(angle);
    const float s = std::sin(angle);
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * c - b * s;
    head[i + half] = b * c + a * s;
  }
}

// Norms, limits and rotates `heads` heads of one token in place; they lie `stride` values apart.
void FullAttention::prepare(Compute& compute, const FullAttentionSpec& spec,
                            std::span<const float> factor, std::size_t position, std::size_t heads,
                            std::size_t stride, float* first) const {
  const std::size_t hd = config_.head_dim;
  if (spec.norm == QueryKeyNorm::kWholeWidth) {
    rms_norm(compute, first, factor, config_.rms_norm_eps, 1, heads * hd, first);
  }
  for (std::size_t h = 0; h < heads; ++h) {
    float* head = first + h * stride;
    if (spec.norm == QueryKeyNorm::kPerHead) {
      rms_norm(compute, head, factor, config_.rms_norm_eps, 1, hd, head);
    }
    if (spec.clip.has_value()) limit(*spec.clip, hd, head);
    rotate(head, position);
  }
}

// The queries in place, the new keys and values in the cache.
void FullAttention::prepare_heads(Compute& compute, const FullAttentionWeights& weights,
                                  LayerState& state, std::size_t position, std::size_t tokens) {
  const FullAttentionSpec& spec = weights.spec;
  const std::size_t hd = config_.head_dim;
  const std::size_t kv_width = config_.num_kv_heads * hd;
  const std::size_t stride = query_stride(spec);
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      prepare(compute, spec, weights.q_norm, position + t, config_.num_heads, stride,
              query_gate_.data() + t * config_.num_heads * stride);
      prepare(compute, spec, weights.k_norm, position + t, config_.num_kv_heads, hd,
              state.key_row(position + t, kv_width));
      if (spec.clip.has_value()) {
        limit(*spec.clip, kv_width, state.value_row(position + t, kv_width));
      }
    }
  });
}

void FullAttention::attend(Compute& compute, const FullAttentionSpec& spec, LayerState& state,
                           std::size_t position, std::size_t token, std::size_t head,
                           std::vector<float>& scores) {
  const Kernels& kernels = compute.kernels();
  const std::size_t hd = config_.head_dim;
  const std::size_t kv_width = config_.num_kv_heads * hd;
  const std::size_t kv_head = head / (config_.num_heads / config_.num_kv_heads);
  const std::size_t seen = position + token + 1;
  const float* q = query_gate_.data() + (token * config_.num_heads + head) * query_stride(spec);
  const float scale = 1.0F / std::sqrt(static_cast<float>(hd));
  for (std::size_t s = 0; s < seen; ++s) {
    scores[s] = kernels.dot(q, state.key_row(s, kv_width) + kv_head * hd, hd) * scale;
  }
  softmax(scores.data(), seen);
  float* out = mixed_.data() + (token * config_.num_heads + head) * hd;
  std::fill(out, out + hd, 0.0F);
  for (std::size_t s = 0; s < seen; ++s) {
    kernels.axpy(scores[s], state.value_row(s, kv_width) + kv_head * hd, out, hd);
  }
  if (!spec.has_gate) return;
  const float* gate = q + hd;
  for (std::size_t i = 0; i < hd; ++i) out[i] *= sigmoid(gate[i]);
}

void FullAttention::forward(Compute& compute, const FullAttentionWeights& weights,
                            LayerState& state, std::size_t position, const float* u,
                            std::size_t tokens, float* out) {
  const std::size_t kv_width = std::size_t{config_.num_kv_heads} * config_.head_dim;
  compute.matmul(weights.q, u, tokens, query_gate_.data());
  compute.matmul(weights.k, u, tokens, state.key_row(position, kv_width));
  compute.matmul(weights.v, u, tokens, state.value_row(position, kv_width));
  prepare_heads(compute, weights, state, position, tokens);
  const std::size_t heads = config_.num_heads;
  compute.pool().parallel_for(
      tokens * heads, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        for (std::size_t i = begin; i < end; ++i) {
          attend(compute, weights.spec, state, position, i / heads, i % heads, scores_[worker]);
        }
      });
  compute.matmul(weights.o, mixed_.data(), tokens, out);
}

}  // namespace moepack
