#include "runtime/model/full_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace moepack {
namespace {

// Into [-bound, bound], in place.
void limit(float bound, std::size_t count, float* values) {
  for (std::size_t i = 0; i < count; ++i) values[i] = std::clamp(values[i], -bound, bound);
}

}  // namespace

FullAttention::FullAttention(const ModelConfig& config, Activations& scratch)
    : config_(config),
      scratch_(scratch),
      blocks_(full_attention_shape(config), scratch),
      rope_(config) {}

// Norms, limits and rotates `heads` heads of one token in place; they lie `stride` values apart.
void FullAttention::prepare(Compute& compute, const FullAttentionSpec& spec,
                            std::span<const float> factor, std::span<const float> rotation,
                            std::size_t heads, std::size_t stride, float* first) const {
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
    rope_.rotate(compute.kernels().attention, rotation, head);
  }
}

// Queries, new keys and new values of one row of the batch, where they lie.
void FullAttention::prepare_token(Compute& compute, const FullAttentionWeights& weights,
                                  std::size_t position, std::size_t row,
                                  std::span<float> rotation) {
  const FullAttentionSpec& spec = weights.spec;
  const std::size_t hd = config_.head_dim;
  const std::size_t kv_width = config_.num_kv_heads * hd;
  const std::size_t stride = query_stride(spec);
  float* queries = scratch_.query_gate.data() + row * config_.num_heads * stride;
  add_bias(weights.q_bias, 1, queries);
  add_bias(weights.k_bias, 1, scratch_.keys.data() + row * kv_width);
  add_bias(weights.v_bias, 1, scratch_.values.data() + row * kv_width);
  rope_.fill(position, rotation);
  prepare(compute, spec, weights.q_norm, rotation, config_.num_heads, stride, queries);
  prepare(compute, spec, weights.k_norm, rotation, config_.num_kv_heads, hd,
          scratch_.keys.data() + row * kv_width);
  if (spec.clip.has_value()) limit(*spec.clip, kv_width, scratch_.values.data() + row * kv_width);
  if (compute.kernels().attention == nullptr) return;
  const float scale = 1.0F / std::sqrt(static_cast<float>(hd));
  for (std::size_t h = 0; h < config_.num_heads; ++h) {
    for (std::size_t i = 0; i < hd; ++i) queries[h * stride + i] *= scale;
  }
}

void FullAttention::prepare_heads(Compute& compute, const FullAttentionWeights& weights,
                                  std::span<const LayerSlice> slices, std::size_t tokens) {
  const std::size_t width = 2 * rope_.pairs();
  compute.pool().parallel_for(
      tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        const std::span<float> rotation = scratch_.rotation.subspan(worker * width, width);
        for (std::size_t t = begin; t < end; ++t) {
          const LayerSlice* slice = slice_of_row(slices, t);
          if (slice == nullptr) continue;
          prepare_token(compute, weights, slice->position + (t - slice->first), t, rotation);
        }
      });
}

void FullAttention::store(std::span<const LayerSlice> slices) {
  const std::size_t width = std::size_t{config_.num_kv_heads} * config_.head_dim;
  for (const LayerSlice& slice : slices) {
    if (!slice.is_live()) continue;
    *slice.status = slice.state->kv->store(slice.position, slice.count,
                                           scratch_.keys.data() + slice.first * width,
                                           scratch_.values.data() + slice.first * width);
  }
}

void FullAttention::attend(const Kernels& kernels, const FullAttentionWeights& weights,
                           const LayerSlice& slice, std::size_t row, std::size_t head,
                           float* scores) {
  const FullAttentionSpec& spec = weights.spec;
  const std::size_t hd = config_.head_dim;
  const std::size_t kv_head = head / (config_.num_heads / config_.num_kv_heads);
  const std::size_t seen = slice.position + (row - slice.first) + 1;
  const float* q =
      scratch_.query_gate.data() + (row * config_.num_heads + head) * query_stride(spec);
  const float scale = 1.0F / std::sqrt(static_cast<float>(hd));
  const KvRows& kv = *slice.state->kv->rows();
  kv.score(kernels, q, kv_head, seen, scale, scores);
  const std::size_t hidden = seen - std::min<std::size_t>(seen, spec.window.value_or(seen));
  std::fill_n(scores, hidden, 0.0F);
  if (weights.sinks.empty()) {
    softmax(scores + hidden, seen - hidden);
  } else {
    softmax_with_sink(weights.sinks[head], scores + hidden, seen - hidden);
  }
  float* out = scratch_.attended.data() + (row * config_.num_heads + head) * hd;
  std::fill(out, out + hd, 0.0F);
  kv.add_values(kernels, scores, kv_head, seen, out);
  if (!spec.has_gate) return;
  const float* gate = q + hd;
  for (std::size_t i = 0; i < hd; ++i) out[i] *= sigmoid(gate[i]);
}

void FullAttention::attend_rows(Compute& compute, const FullAttentionWeights& weights,
                                std::span<const LayerSlice> slices, std::size_t tokens) {
  const std::size_t heads = config_.num_heads;
  const std::size_t context = scratch_.context();
  compute.pool().parallel_for(tokens * heads, 1,
                              [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                for (std::size_t i = begin; i < end; ++i) {
                                  const LayerSlice* slice = slice_of_row(slices, i / heads);
                                  if (slice == nullptr) continue;
                                  attend(compute.kernels(), weights, *slice, i / heads, i % heads,
                                         scratch_.scores.data() + worker * context);
                                }
                              });
}

void FullAttention::forward(Compute& compute, const FullAttentionWeights& weights,
                            std::span<const LayerSlice> slices, const float* u, std::size_t tokens,
                            float* out) {
  const std::array<Product, 3> inputs{Product{&weights.q, scratch_.query_gate.data()},
                                      Product{&weights.k, scratch_.keys.data()},
                                      Product{&weights.v, scratch_.values.data()}};
  compute.products(inputs, u, tokens);
  prepare_heads(compute, weights, slices, tokens);
  store(slices);
  if (compute.kernels().attention != nullptr) {
    blocks_.attend(compute, slices,
                   {.queries = scratch_.query_gate.data(),
                    .query_stride = query_stride(weights.spec),
                    .out = scratch_.attended.data(),
                    .out_stride = config_.head_dim,
                    .has_gate = weights.spec.has_gate,
                    .sinks = weights.sinks,
                    .window = weights.spec.window.value_or(kMaxSequenceTokens)});
  } else {
    attend_rows(compute, weights, slices, tokens);
  }
  compute.matmul(weights.o, scratch_.attended.data(), tokens, out);
  add_bias(weights.o_bias, tokens, out);
}

}  // namespace moepack
