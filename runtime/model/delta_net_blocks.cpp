#include "runtime/model/delta_net_blocks.h"

#include <algorithm>
#include <cmath>

namespace moepack {
// Parts of a thread's scratch: delta_block_floats().
struct DeltaNetBlocks::Task {
  Compute& compute;
  const Kernels& kernels;
  const DeltaBlockKernels& block;
  const DeltaNetWeights& weights;
  const LayerSlice& slice;
  std::size_t key_head;
  float* queries;    // [kDeltaBlock, dk]
  float* of_k;       // [kDeltaBlock, dv]: S^T k
  float* key_key;    // [kDeltaBlock, kDeltaBlock]: row i: products of k_i with k_j
  float* key_query;  // [kDeltaBlock, kDeltaBlock]: row i: products of q_i with k_j
  float* from_k;     // [kDeltaBlock]: of one token, decayed
  float* from_q;     // [kDeltaBlock]

  DeltaRows& rows() const { return slice.state->rows; }
};

// Tokens [first, first + count) of the slice are rows [row, row + count) of their block.
struct DeltaNetBlocks::Block {
  std::size_t first;
  std::size_t row;
  std::size_t count;
};

DeltaNetBlocks::DeltaNetBlocks(const ModelConfig& config, Activations& scratch)
    : config_(config), scratch_(scratch), channels_(conv_channels(config)) {}

// Depthwise causal convolution over the raw inputs of `width` channels, then silu; out: [count,
// width]. The first taps - 1 tokens of a slice look back into the window that the state keeps.
void DeltaNetBlocks::convolve(const Task& task, const Block& block, std::size_t channel,
                              std::size_t width, float* out) const {
  const std::size_t window = config_.linear_conv_taps - 1;
  const float* kept = window == 0 ? nullptr : task.slice.state->conv.data() + channel;
  const float* raw = scratch_.delta_raw.data() + task.slice.first * channels_ + channel;
  for (std::size_t t = block.first; t < block.first + block.count; ++t, out += width) {
    const std::size_t kept_taps = t < window ? window - t : 0;
    task.block.convolve({.kept = kept_taps == 0 ? nullptr : kept + (window - kept_taps) * channels_,
                         .kept_taps = kept_taps,
                         .fresh = raw + (t + kept_taps - window) * channels_,
                         .w = task.weights.conv.data() + channel,
                         .stride = channels_,
                         .taps = config_.linear_conv_taps,
                         .width = width,
                         .out = out});
  }
}

// As l2_norm.
void DeltaNetBlocks::make_unit(const Task& task, float factor, float* key) const {
  const std::size_t dk = config_.linear_key_dim;
  const float sum = task.kernels.dot(key, key, dk);
  if (!std::isfinite(sum)) return l2_norm(task.kernels, kL2Epsilon, factor, dk, key);
  const float scale = 1.0F / std::sqrt(sum + kL2Epsilon);
  task.block.scale(scale * factor, key, dk);
}

// Keys go where the state keeps them. q and k get unit length, q is also scaled by dk^-1/2.
void DeltaNetBlocks::prepare_keys(const Task& task, const Block& block) const {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(dk));
  float* keys = task.rows().keys.data() + task.key_head * kDeltaBlock * dk;
  convolve(task, block, task.key_head * dk, dk, task.queries + block.row * dk);
  convolve(task, block, (key_heads + task.key_head) * dk, dk, keys + block.row * dk);
  for (std::size_t i = block.row; i < block.row + block.count; ++i) {
    make_unit(task, q_scale, task.queries + i * dk);
    make_unit(task, 1.0F, keys + i * dk);
    task.block.row_products(keys, i + 1, keys + i * dk, task.queries + i * dk, dk,
                            task.key_key + i * kDeltaBlock, task.key_query + i * kDeltaBlock);
  }
}

// Per head: plain RMSNorm, then times silu(z). As rms_norm and swiglu.
void DeltaNetBlocks::gate_output(const Task& task, std::size_t head, std::size_t row) const {
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t at = (row * config_.linear_value_heads + head) * dv;
  float* y = scratch_.delta_mixed.data() + at;
  const float* z = scratch_.delta_z.data() + at;
  const float sum = task.kernels.dot(y, y, dv);
  if (!std::isfinite(sum)) {
    rms_norm(task.compute, y, task.weights.norm, config_.rms_norm_eps, 1, dv, y);
    return task.kernels.swiglu(z, y, y, dv);
  }
  const float scale = 1.0F / std::sqrt(sum / static_cast<float>(dv) + config_.rms_norm_eps);
  task.block.gate(y, scale, task.weights.norm.data(), z, dv, y);
}

// One token of one V head, whose products with the state stand in of_k and delta_mixed.
void DeltaNetBlocks::mix_token(const Task& task, const Block& block, std::size_t head,
                               std::size_t token) const {
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t heads = config_.linear_value_heads;
  const std::size_t row = task.slice.first + block.first + token;  // of the batch
  const std::size_t i = block.row + token;
  const float decay =
      std::exp(task.weights.decay_rate[head] *
               softplus(scratch_.delta_a[row * heads + head] + task.weights.dt_bias[head]));
  // decays[0]: since the block's beginning; decays[1 + j]: since row j.
  float* decays = task.rows().decays.data() + head * (kDeltaBlock + 1);
  decays[0] = i == 0 ? decay : decays[0] * decay;
  for (std::size_t j = 0; j < i; ++j) decays[1 + j] *= decay;
  decays[1 + i] = 1.0F;
  for (std::size_t j = 0; j <= i; ++j) {
    task.from_k[j] = decays[1 + j] * task.key_key[i * kDeltaBlock + j];
    task.from_q[j] = decays[1 + j] * task.key_query[i * kDeltaBlock + j];
  }
  task.block.mix_row({.values = task.rows().values.data() + head * kDeltaBlock * dv,
                      .row = i,
                      .value_dim = dv,
                      .decay = decays[0],
                      .beta = sigmoid(scratch_.delta_b[row * heads + head]),
                      .from_k = task.from_k,
                      .from_q = task.from_q,
                      .of_k = task.of_k + token * dv,
                      .out = scratch_.delta_mixed.data() + (row * heads + head) * dv});
  gate_output(task, head, row);
}

// The state moves on behind a full block, whose rows are then no longer needed.
void DeltaNetBlocks::advance(const Task& task, std::size_t head) const {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  float* values = task.rows().values.data() + head * kDeltaBlock * dv;
  const float* decays = task.rows().decays.data() + head * (kDeltaBlock + 1);
  for (std::size_t j = 0; j < kDeltaBlock; ++j) {
    task.block.scale(decays[1 + j], values + j * dv, dv);
  }
  task.block.advance({.state = task.slice.state->delta.data() + head * dk * dv,
                      .key_dim = dk,
                      .value_dim = dv,
                      .decay = decays[0],
                      .k = task.rows().keys.data() + task.key_head * kDeltaBlock * dk,
                      .u = values});
}

void DeltaNetBlocks::mix_head(const Task& task, const Block& block, std::size_t head) const {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t width = config_.linear_value_heads * dv;
  float* values = task.rows().values.data() + head * kDeltaBlock * dv;
  convolve(task, block, 2 * config_.linear_key_heads * dk + head * dv, dv, values + block.row * dv);
  const float* keys = task.rows().keys.data() + task.key_head * kDeltaBlock * dk;
  const std::size_t row = task.slice.first + block.first;
  task.block.state_products({.state = task.slice.state->delta.data() + head * dk * dv,
                             .key_dim = dk,
                             .value_dim = dv,
                             .tokens = block.count,
                             .k = keys + block.row * dk,
                             .q = task.queries + block.row * dk,
                             .of_k = task.of_k,
                             .of_q = scratch_.delta_mixed.data() + row * width + head * dv,
                             .q_stride = width});
  for (std::size_t t = 0; t < block.count; ++t) mix_token(task, block, head, t);
  if (block.row + block.count == kDeltaBlock) advance(task, head);
}

// Keeps the last taps - 1 inputs of window and slice, of `width` channels.
void DeltaNetBlocks::move_window(const Task& task, std::size_t channel, std::size_t width) const {
  const std::size_t window = config_.linear_conv_taps - 1;
  if (window == 0) return;
  const std::size_t count = task.slice.count;
  float* kept = task.slice.state->conv.data() + channel;
  const float* raw = scratch_.delta_raw.data() + task.slice.first * channels_ + channel;
  for (std::size_t i = 0; i < window; ++i) {
    const std::size_t from = count + i;
    std::copy_n(from < window ? kept + from * channels_ : raw + (from - window) * channels_, width,
                kept + i * channels_);
  }
}

void DeltaNetBlocks::run(const Task& task) const {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const std::size_t shared = config_.linear_value_heads / key_heads;
  const auto head_of = [&](std::size_t i) {
    return task.weights.tiled_v_heads ? task.key_head + i * key_heads : task.key_head * shared + i;
  };
  Block block{0, static_cast<std::size_t>(task.slice.position % kDeltaBlock), 0};
  for (; block.first < task.slice.count; block.first += block.count, block.row = 0) {
    block.count = std::min(kDeltaBlock - block.row, task.slice.count - block.first);
    prepare_keys(task, block);
    for (std::size_t i = 0; i < shared; ++i) mix_head(task, block, head_of(i));
  }
  move_window(task, task.key_head * dk, dk);
  move_window(task, (key_heads + task.key_head) * dk, dk);
  for (std::size_t i = 0; i < shared; ++i) {
    move_window(task, 2 * key_heads * dk + head_of(i) * dv, dv);
  }
}

void DeltaNetBlocks::mix(Compute& compute, const DeltaNetWeights& weights,
                         std::span<const LayerSlice> slices) {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const std::size_t floats = delta_block_floats(dk, dv);
  compute.pool().parallel_for(
      slices.size() * key_heads, 1, [&](std::size_t begin, std::size_t end, std::size_t worker) {
        float* queries = scratch_.delta_block.data() + worker * floats;
        float* of_k = queries + kDeltaBlock * dk;
        float* key_key = of_k + kDeltaBlock * dv;
        float* key_query = key_key + kDeltaBlock * kDeltaBlock;
        float* from_k = key_query + kDeltaBlock * kDeltaBlock;
        for (std::size_t i = begin; i < end; ++i) {
          const LayerSlice& slice = slices[i / key_heads];
          if (!slice.is_live()) continue;
          run({compute, compute.kernels(), *compute.kernels().delta_block, weights, slice,
               i % key_heads, queries, of_k, key_key, key_query, from_k, from_k + kDeltaBlock});
        }
      });
}

}  // namespace moepack
