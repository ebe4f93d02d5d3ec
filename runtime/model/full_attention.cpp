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
    : config_(config), scratch_(scratch) {
  std::size_t most = 0;
  for (const HeadSizes& heads : config.head_kinds()) {
    kinds_.emplace_back(config, heads, scratch);
    most = std::max<std::size_t>(most, heads.head_dim);
  }
  ones_.assign(most, 1.0F);
}

FullAttention::Layer FullAttention::layer_of(const FullAttentionWeights& weights) {
  const HeadSizes heads = config_.heads_of(weights.spec);
  const auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                                 [&](const Kind& known) { return known.heads == heads; });
  const float usual = 1.0F / std::sqrt(static_cast<float>(heads.head_dim));
  return {.kind = *kind,
          .weights = weights,
          .query_stride = std::size_t{weights.spec.has_gate ? 2U : 1U} * heads.head_dim,
          .score_scale = weights.spec.score_scale.value_or(usual)};
}

// Norms, limits and rotates `heads` heads of one token in place; they lie `stride` values apart.
void FullAttention::prepare(Compute& compute, const Layer& layer, std::span<const float> factor,
                            std::span<const float> rotation, std::size_t heads, std::size_t stride,
                            float* first) const {
  const FullAttentionSpec& spec = layer.weights.spec;
  const std::size_t hd = layer.kind.heads.head_dim;
  if (spec.norm == QueryKeyNorm::kWholeWidth) {
    rms_norm(compute, first, factor, config_.rms_norm_eps, 1, heads * hd, first);
  }
  for (std::size_t h = 0; h < heads; ++h) {
    float* head = first + h * stride;
    if (spec.norm == QueryKeyNorm::kPerHead) {
      rms_norm(compute, head, factor, config_.rms_norm_eps, 1, hd, head);
    }
    if (spec.clip.has_value()) limit(*spec.clip, hd, head);
    layer.kind.rope.rotate(compute.kernels().attention, rotation, head);
  }
}

// The new values of one row of the batch; before its keys are prepared, which they may be.
void FullAttention::prepare_values(Compute& compute, const Layer& layer, std::size_t row) {
  const FullAttentionSpec& spec = layer.weights.spec;
  const std::size_t hd = layer.kind.heads.head_dim;
  const std::size_t width = layer.kind.kv_width();
  float* values = scratch_.values.data() + row * width;
  if (spec.values_are_keys) std::copy_n(scratch_.keys.data() + row * width, width, values);
  add_bias(layer.weights.v_bias, 1, values);
  if (spec.has_value_norm) {
    rms_norm(compute, values, ones_, config_.rms_norm_eps, layer.kind.heads.kv_heads, hd, values);
  }
  if (spec.clip.has_value()) limit(*spec.clip, width, values);
}

// Queries, new keys and new values of one row of the batch, where they lie.
void FullAttention::prepare_token(Compute& compute, const Layer& layer, std::size_t position,
                                  std::size_t row, std::span<float> rotation) {
  const FullAttentionWeights& weights = layer.weights;
  const HeadSizes& heads = layer.kind.heads;
  const std::size_t stride = layer.query_stride;
  float* queries = scratch_.query_gate.data() + row * heads.heads * stride;
  float* keys = scratch_.keys.data() + row * layer.kind.kv_width();
  prepare_values(compute, layer, row);
  add_bias(weights.q_bias, 1, queries);
  add_bias(weights.k_bias, 1, keys);
  layer.kind.rope.fill(position, rotation);
  prepare(compute, layer, weights.q_norm, rotation, heads.heads, stride, queries);
  prepare(compute, layer, weights.k_norm, rotation, heads.kv_heads, heads.head_dim, keys);
  if (compute.kernels().attention == nullptr) return;
  for (std::size_t h = 0; h < heads.heads; ++h) {
    for (std::size_t i = 0; i < heads.head_dim; ++i) queries[h * stride + i] *= layer.score_scale;
  }
}

void FullAttention::prepare_heads(Compute& compute, const Layer& layer,
                                  std::span<const LayerSlice> slices, std::size_t tokens) {
  const std::size_t width = 2 * layer.kind.rope.pairs();
  compute.pool().parallel_for(
      tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        const std::span<float> rotation = scratch_.rotation.subspan(worker * width, width);
        for (std::size_t t = begin; t < end; ++t) {
          const LayerSlice* slice = slice_of_row(slices, t);
          if (slice == nullptr) continue;
          prepare_token(compute, layer, slice->position + (t - slice->first), t, rotation);
        }
      });
}

void FullAttention::store(const Kind& kind, std::span<const LayerSlice> slices) {
  const std::size_t width = kind.kv_width();
  for (const LayerSlice& slice : slices) {
    if (!slice.is_live()) continue;
    *slice.status = slice.state->kv->store(slice.position, slice.count,
                                           scratch_.keys.data() + slice.first * width,
                                           scratch_.values.data() + slice.first * width);
  }
}

void FullAttention::attend(const Kernels& kernels, const Layer& layer, const LayerSlice& slice,
                           std::size_t row, std::size_t head, float* scores) {
  const FullAttentionSpec& spec = layer.weights.spec;
  const HeadSizes& heads = layer.kind.heads;
  const std::size_t hd = heads.head_dim;
  const std::size_t kv_head = head / (heads.heads / heads.kv_heads);
  const std::size_t seen = slice.position + (row - slice.first) + 1;
  const float* q = scratch_.query_gate.data() + (row * heads.heads + head) * layer.query_stride;
  const KvRows& kv = *slice.state->kv->rows();
  kv.score(kernels, q, kv_head, seen, layer.score_scale, scores);
  const std::size_t hidden = seen - std::min<std::size_t>(seen, spec.window.value_or(seen));
  std::fill_n(scores, hidden, 0.0F);
  if (layer.weights.sinks.empty()) {
    softmax(scores + hidden, seen - hidden);
  } else {
    softmax_with_sink(layer.weights.sinks[head], scores + hidden, seen - hidden);
  }
  float* out = scratch_.attended.data() + (row * heads.heads + head) * hd;
  std::fill(out, out + hd, 0.0F);
  kv.add_values(kernels, scores, kv_head, seen, out);
  if (!spec.has_gate) return;
  const float* gate = q + hd;
  for (std::size_t i = 0; i < hd; ++i) out[i] *= sigmoid(gate[i]);
}

void FullAttention::attend_rows(Compute& compute, const Layer& layer,
                                std::span<const LayerSlice> slices, std::size_t tokens) {
  const std::size_t heads = layer.kind.heads.heads;
  const std::size_t context = scratch_.context();
  compute.pool().parallel_for(tokens * heads, 1,
                              [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                for (std::size_t i = begin; i < end; ++i) {
                                  const LayerSlice* slice = slice_of_row(slices, i / heads);
                                  if (slice == nullptr) continue;
                                  attend(compute.kernels(), layer, *slice, i / heads, i % heads,
                                         scratch_.scores.data() + worker * context);
                                }
                              });
}

void FullAttention::forward(Compute& compute, const FullAttentionWeights& weights,
                            std::span<const LayerSlice> slices, const float* u, std::size_t tokens,
                            float* out) {
  const Layer layer = layer_of(weights);
  const std::array<Product, 3> inputs{Product{&weights.q, scratch_.query_gate.data()},
                                      Product{&weights.k, scratch_.keys.data()},
                                      Product{&weights.v, scratch_.values.data()}};
  compute.products(std::span(inputs).first(weights.spec.values_are_keys ? 2 : 3), u, tokens);
  prepare_heads(compute, layer, slices, tokens);
  store(layer.kind, slices);
  if (compute.kernels().attention != nullptr) {
    layer.kind.blocks.attend(compute, slices,
                             {.queries = scratch_.query_gate.data(),
                              .query_stride = layer.query_stride,
                              .out = scratch_.attended.data(),
                              .out_stride = layer.kind.heads.head_dim,
                              .has_gate = weights.spec.has_gate,
                              .sinks = weights.sinks,
                              .window = weights.spec.window.value_or(kMaxSequenceTokens)});
  } else {
    attend_rows(compute, layer, slices, tokens);
  }
  compute.matmul(weights.o, scratch_.attended.data(), tokens, out);
  add_bias(weights.o_bias, tokens, out);
}

}  // namespace moepack
