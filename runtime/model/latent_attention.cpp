#include "runtime/model/latent_attention.h"

#include <algorithm>
#include <array>

#include "formats/weights/qcodec.h"
#include "formats/weights/row_order.h"
#include "runtime/model/latent_scale.h"

namespace moepack {

LatentAttention::LatentAttention(const ModelConfig& config, Activations& scratch)
    : config_(config),
      scratch_(scratch),
      shape_(latent_attention_shape(config)),
      blocks_(shape_, scratch),
      rope_(config),
      scale_(config.head_dim == 0 ? 1.0F : latent_softmax_scale(config)) {}

// Queries of all heads, and the compressed rows.
void LatentAttention::project(Compute& compute, const LatentAttentionWeights& weights,
                              const float* u, std::size_t tokens) {
  float* const queries = scratch_.query_gate.data();
  float* const down = scratch_.query_down.data();
  const bool has_rank = weights.spec.has_query_rank;
  const std::array<Product, 2> inputs{
      has_rank ? Product{&weights.q_down, down} : Product{&weights.q, queries},
      Product{&weights.kv_down, scratch_.keys.data()}};
  compute.products(inputs, u, tokens);
  if (!has_rank) return;
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    const std::size_t width = config_.query_rank;
    rms_norm(compute, down + begin * width, weights.q_down_norm, kLatentNormEps, end - begin, width,
             down + begin * width);
  });
  compute.matmul(weights.q, down, tokens, queries);
}

// One row of the batch: norms and rotates where it lies; the rotated part of each query goes behind
// the place of its absorbed part.
void LatentAttention::prepare_token(Compute& compute, const LatentAttentionWeights& weights,
                                    std::size_t position, std::size_t row,
                                    std::span<float> rotation) {
  const AttentionKernels* const kernels = compute.kernels().attention;
  const std::size_t rank = config_.kv_rank;
  rope_.fill(position, rotation);
  float* const key = scratch_.keys.data() + row * shape_.key_dim;
  rms_norm(compute, key, weights.kv_norm, kLatentNormEps, 1, rank, key);
  rope_.rotate(kernels, rotation, key + rank);
  for (std::size_t head = 0; head < config_.num_heads; ++head) {
    float* const query =
        scratch_.query_gate.data() + (row * config_.num_heads + head) * config_.head_dim;
    rope_.rotate(kernels, rotation, query + plain_dim());
    for (std::size_t i = 0; i < config_.head_dim; ++i) query[i] *= scale_;
    std::copy_n(query + plain_dim(), config_.rotary_dim, latent_query(row, head) + rank);
  }
}

void LatentAttention::prepare(Compute& compute, const LatentAttentionWeights& weights,
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

void LatentAttention::store(std::span<const LayerSlice> slices) {
  for (const LayerSlice& slice : slices) {
    if (!slice.is_live()) continue;
    *slice.status = slice.state->kv->store(
        slice.position, slice.count, scratch_.keys.data() + slice.first * shape_.key_dim, nullptr);
  }
}

// The sum over the head's key rows, in order, of the query's value times the row. A few rows are
// decoded at a time, so that they and a token's sum stay in the nearest cache. `rows`: room for
// them, [kLatentRows, R].
void LatentAttention::absorb_head(const Kernels& kernels, const QMatrixView& kv_up,
                                  std::size_t head, std::size_t tokens, std::span<float> rows) {
  const std::size_t rank = config_.kv_rank;
  for (std::size_t first = 0; first < plain_dim(); first += kLatentRows) {
    const std::size_t count = std::min(kLatentRows, plain_dim() - first);
    for (std::size_t i = 0; i < count; ++i) {
      decode_row(kv_up, head * head_rows() + first + i, rows.subspan(i * rank, rank));
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t row = t * config_.num_heads + head;
      const float* const query = scratch_.query_gate.data() + row * config_.head_dim + first;
      float* const sum = latent_query(t, head);
      if (first == 0) std::fill_n(sum, rank, 0.0F);
      for (std::size_t i = 0; i < count; ++i) {
        kernels.axpy(query[i], rows.data() + i * rank, sum, rank);
      }
    }
  }
}

void LatentAttention::absorb(Compute& compute, const QMatrixView& kv_up, std::size_t tokens) {
  const std::size_t room = kLatentRows * config_.kv_rank;
  compute.pool().parallel_for(
      config_.num_heads, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        const std::span<float> rows = scratch_.latent_up.subspan(worker * room, room);
        for (std::size_t head = begin; head < end; ++head) {
          absorb_head(compute.kernels(), kv_up, head, tokens, rows);
        }
      });
}

void LatentAttention::attend_row(const Kernels& kernels, const LayerSlice& slice, std::size_t row,
                                 std::size_t head, float* scores) {
  const std::size_t seen = slice.position + (row - slice.first) + 1;
  float* const query = latent_query(row, head);
  const KvRows& kv = *slice.state->kv->rows();
  kv.score(kernels, query, 0, seen, 1.0F, scores);
  softmax(scores, seen);
  std::fill_n(query, config_.kv_rank, 0.0F);
  kv.add_values(kernels, scores, 0, seen, query);
}

// Every query becomes the sum of compressed rows that it attends to.
void LatentAttention::attend(Compute& compute, std::span<const LayerSlice> slices,
                             std::size_t tokens) {
  if (compute.kernels().attention != nullptr) {
    return blocks_.attend(compute, slices,
                          {.queries = scratch_.latent_queries.data(),
                           .query_stride = shape_.key_dim,
                           .out = scratch_.latent_queries.data(),
                           .out_stride = shape_.key_dim,
                           .has_gate = false});
  }
  const std::size_t heads = config_.num_heads;
  const std::size_t context = scratch_.context();
  compute.pool().parallel_for(tokens * heads, 1,
                              [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                for (std::size_t i = begin; i < end; ++i) {
                                  const LayerSlice* slice = slice_of_row(slices, i / heads);
                                  if (slice == nullptr) continue;
                                  attend_row(compute.kernels(), *slice, i / heads, i % heads,
                                             scratch_.scores.data() + worker * context);
                                }
                              });
}

// Through the head's value rows: attended [tokens, heads, value_dim]. With the inputs that other
// products with matrices of this format take.
void LatentAttention::expand_head(Compute& compute, const QMatrixView& kv_up, std::size_t head,
                                  std::size_t tokens, std::size_t worker) {
  const Kernels& kernels = compute.kernels();
  const std::size_t width = config_.value_dim;
  const std::size_t stride = config_.num_heads * width;
  const QMatrixView rows = slice_rows(kv_up, head * head_rows() + plain_dim(), width);
  float* const out = scratch_.attended.data() + head * width;
  if (!compute.takes_blocks(kv_up.format)) {
    kernels.matmul(rows, latent_query(0, head), config_.num_heads * shape_.key_dim, tokens, 0,
                   width, out, stride, compute.scratch(worker));
    return;
  }
  const std::size_t most = scratch_.latent_rows.size() / compute.pool().size();
  const std::size_t blocks = compute.token_stride(config_.kv_rank);
  const InputBlock** const inputs = scratch_.latent_rows.data() + worker * most;
  for (std::size_t t = 0; t < tokens; ++t) {
    InputBlock* const to = scratch_.latent_blocks.data() + (worker * most + t) * blocks;
    compute.quantize_part(latent_query(t, head), 0, config_.kv_rank, to);
    inputs[t] = to;
  }
  compute.multiply_blocks(rows, inputs, tokens, 0, width, out, stride, worker);
}

void LatentAttention::expand(Compute& compute, const QMatrixView& kv_up, std::size_t tokens) {
  compute.pool().parallel_for(config_.num_heads, 1,
                              [&](std::size_t begin, std::size_t end, std::size_t worker) {
                                for (std::size_t head = begin; head < end; ++head) {
                                  expand_head(compute, kv_up, head, tokens, worker);
                                }
                              });
}

void LatentAttention::forward(Compute& compute, const LatentAttentionWeights& weights,
                              std::span<const LayerSlice> slices, const float* u,
                              std::size_t tokens, float* out) {
  project(compute, weights, u, tokens);
  prepare(compute, weights, slices, tokens);
  store(slices);
  absorb(compute, weights.kv_up, tokens);
  attend(compute, slices, tokens);
  expand(compute, weights.kv_up, tokens);
  compute.matmul(weights.o, scratch_.attended.data(), tokens, out);
}

}  // namespace moepack
