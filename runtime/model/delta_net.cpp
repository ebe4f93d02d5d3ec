#include "runtime/model/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace moepack {
DeltaNet::DeltaNet(const ModelConfig& config, Activations& scratch)
    : config_(config),
      scratch_(scratch),
      channels_(conv_channels(config)),
      blocks_(config, scratch) {}

// Depthwise causal convolution over the raw inputs, then silu. The first taps - 1 tokens of a slice
// look back into the window that the state keeps.
void DeltaNet::convolve(Compute& compute, const DeltaNetWeights& weights,
                        std::span<const LayerSlice> slices, std::size_t tokens) {
  const std::size_t taps = config_.linear_conv_taps;
  const std::size_t window = taps - 1;
  const std::size_t channels = channels_;
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      const LayerSlice* slice = slice_of_row(slices, t);
      if (slice == nullptr) continue;
      float* out = scratch_.delta_qkv.data() + t * channels;
      std::fill(out, out + channels, 0.0F);
      for (std::size_t j = 0; j < taps; ++j) {
        const std::size_t at = t - slice->first + j;  // counted from the window's start
        const float* in = at < window
                              ? slice->state->conv.data() + at * channels
                              : scratch_.delta_raw.data() + (slice->first + at - window) * channels;
        const float* w = weights.conv.data() + j * channels;
        for (std::size_t c = 0; c < channels; ++c) out[c] += w[c] * in[c];
      }
      for (std::size_t c = 0; c < channels; ++c) out[c] *= sigmoid(out[c]);
    }
  });
  for (const LayerSlice& slice : slices) {
    if (slice.is_live()) move_window(slice);
  }
}

// Keeps the last taps - 1 inputs of window and slice.
void DeltaNet::move_window(const LayerSlice& slice) {
  std::vector<float>& conv = slice.state->conv;
  const std::size_t window = config_.linear_conv_taps - 1;
  const std::size_t fresh = std::min(window, slice.count);
  std::copy(conv.begin() + static_cast<std::ptrdiff_t>(fresh * channels_), conv.end(),
            conv.begin());
  std::copy_n(scratch_.delta_raw.data() + (slice.first + slice.count - fresh) * channels_,
              fresh * channels_, conv.data() + (window - fresh) * channels_);
}

// q and k of every key head to unit length; q also scaled by dk^-1/2.
void DeltaNet::normalise_keys(Compute& compute, std::size_t tokens) {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(dk));
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      for (std::size_t h = 0; h < 2 * key_heads; ++h) {
        l2_norm(compute.kernels(), kL2Epsilon, h < key_heads ? q_scale : 1.0F, dk,
                scratch_.delta_qkv.data() + t * channels_ + h * dk);
      }
    }
  });
}

void DeltaNet::recur_head(const Kernels& kernels, const DeltaNetWeights& weights,
                          const LayerSlice& slice, std::size_t head) {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const std::size_t heads = config_.linear_value_heads;
  const std::size_t key_head =
      weights.tiled_v_heads ? head % key_heads : head / (heads / key_heads);
  float* s = slice.state->delta.data() + head * dk * dv;
  for (std::size_t t = slice.first; t < slice.first + slice.count; ++t) {
    const float* row = scratch_.delta_qkv.data() + t * channels_;
    const float g = weights.decay_rate[head] *
                    softplus(scratch_.delta_a[t * heads + head] + weights.dt_bias[head]);
    kernels.gated_delta_step(s, row + key_head * dk, row + (key_heads + key_head) * dk,
                             row + 2 * key_heads * dk + head * dv, std::exp(g),
                             sigmoid(scratch_.delta_b[t * heads + head]), dk, dv,
                             scratch_.delta_mixed.data() + (t * heads + head) * dv);
  }
}

void DeltaNet::recur(Compute& compute, const DeltaNetWeights& weights,
                     std::span<const LayerSlice> slices) {
  const std::size_t heads = config_.linear_value_heads;
  compute.pool().parallel_for(slices.size() * heads, 1,
                              [&](std::size_t begin, std::size_t end, std::size_t) {
                                for (std::size_t i = begin; i < end; ++i) {
                                  const LayerSlice& slice = slices[i / heads];
                                  if (slice.is_live())
                                    recur_head(compute.kernels(), weights, slice, i % heads);
                                }
                              });
}

// Per head: plain RMSNorm, then times silu(z).
void DeltaNet::gate_output(Compute& compute, const DeltaNetWeights& weights, std::size_t tokens) {
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t width = config_.linear_value_heads * dv;
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      float* y = scratch_.delta_mixed.data() + t * width;
      rms_norm(compute, y, weights.norm, config_.rms_norm_eps, config_.linear_value_heads, dv, y);
      compute.kernels().swiglu(scratch_.delta_z.data() + t * width, y, y, width);
    }
  });
}

void DeltaNet::mix_by_tokens(Compute& compute, const DeltaNetWeights& weights,
                             std::span<const LayerSlice> slices, std::size_t tokens) {
  convolve(compute, weights, slices, tokens);
  normalise_keys(compute, tokens);
  recur(compute, weights, slices);
  gate_output(compute, weights, tokens);
}

void DeltaNet::forward(Compute& compute, const DeltaNetWeights& weights,
                       std::span<const LayerSlice> slices, const float* u, std::size_t tokens,
                       float* out) {
  const std::array<Product, 4> inputs{{{&weights.in_qkv, scratch_.delta_raw.data()},
                                       {&weights.in_z, scratch_.delta_z.data()},
                                       {&weights.in_b, scratch_.delta_b.data()},
                                       {&weights.in_a, scratch_.delta_a.data()}}};
  compute.products(inputs, u, tokens);
  if (compute.kernels().delta_block != nullptr) {
    blocks_.mix(compute, weights, slices);
  } else {
    mix_by_tokens(compute, weights, slices, tokens);
  }
  compute.matmul(weights.out, scratch_.delta_mixed.data(), tokens, out);
}

}  // namespace moepack
