#include "runtime/model/delta_net.h"

#include <algorithm>
#include <cmath>

namespace moepack {
namespace {

// Inside the square root of the l2 norm of q and k (transformers' l2norm).
constexpr float kL2Epsilon = 1e-6F;

}  // namespace

DeltaNet::DeltaNet(const ModelConfig& config, std::size_t max_tokens)
    : config_(config), channels_(conv_channels(config)) {
  const std::size_t value = std::size_t{config.linear_value_heads} * config.linear_value_dim;
  const std::size_t window = config.linear_conv_taps == 0 ? 0 : config.linear_conv_taps - 1;
  raw_.resize((window + max_tokens) * channels_);
  qkv_.resize(max_tokens * channels_);
  z_.resize(max_tokens * value);
  b_.resize(max_tokens * config.linear_value_heads);
  a_.resize(max_tokens * config.linear_value_heads);
  mixed_.resize(max_tokens * value);
}

// Depthwise causal convolution over the raw inputs, then silu. The window moves on by `tokens`.
void DeltaNet::convolve(Compute& compute, const DeltaNetWeights& weights, LayerState& state,
                        std::size_t tokens) {
  const std::size_t taps = config_.linear_conv_taps;
  const std::size_t channels = channels_;
  std::copy(state.conv.begin(), state.conv.end(), raw_.begin());
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      float* out = qkv_.data() + t * channels;
      std::fill(out, out + channels, 0.0F);
      for (std::size_t j = 0; j < taps; ++j) {
        const float* in = raw_.data() + (t + j) * channels;
        const float* w = weights.conv.data() + j * channels;
        for (std::size_t c = 0; c < channels; ++c) out[c] += w[c] * in[c];
      }
      for (std::size_t c = 0; c < channels; ++c) out[c] *= sigmoid(out[c]);
    }
  });
  const auto last = raw_.begin() + static_cast<std::ptrdiff_t>(tokens * channels);
  std::copy(last, last + static_cast<std::ptrdiff_t>(state.conv.size()), state.conv.begin());
}

// q and k of every key head to unit length; q also scaled by dk^-1/2.
void DeltaNet::normalise_keys(Compute& compute, std::size_t tokens) {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(dk));
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      for (std::size_t h = 0; h < 2 * key_heads; ++h) {
        float* x = qkv_.data() + t * channels_ + h * dk;
        const float sum = compute.kernels().dot(x, x, dk);
        float scale = 1.0F / std::sqrt(sum + kL2Epsilon);
        if (h < key_heads) scale *= q_scale;
        for (std::size_t i = 0; i < dk; ++i) x[i] *= scale;
      }
    }
  });
}

void DeltaNet::recur(Compute& compute, const DeltaNetWeights& weights, LayerState& state,
                     std::size_t tokens) {
  const std::size_t dk = config_.linear_key_dim;
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t key_heads = config_.linear_key_heads;
  const std::size_t heads = config_.linear_value_heads;
  compute.pool().parallel_for(heads, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t h = begin; h < end; ++h) {
      const std::size_t key_head = weights.tiled_v_heads ? h % key_heads : h / (heads / key_heads);
      float* s = state.delta.data() + h * dk * dv;
      for (std::size_t t = 0; t < tokens; ++t) {
        const float* row = qkv_.data() + t * channels_;
        const float g = weights.decay_rate[h] * softplus(a_[t * heads + h] + weights.dt_bias[h]);
        compute.kernels().gated_delta_step(
            s, row + key_head * dk, row + (key_heads + key_head) * dk,
            row + 2 * key_heads * dk + h * dv, std::exp(g), sigmoid(b_[t * heads + h]), dk, dv,
            mixed_.data() + (t * heads + h) * dv);
      }
    }
  });
}

// Per head: plain RMSNorm, then times silu(z).
void DeltaNet::gate_output(Compute& compute, const DeltaNetWeights& weights, std::size_t tokens) {
  const std::size_t dv = config_.linear_value_dim;
  const std::size_t width = config_.linear_value_heads * dv;
  compute.pool().parallel_for(tokens, 1, [&](std::size_t begin, std::size_t end, std::size_t) {
    for (std::size_t t = begin; t < end; ++t) {
      float* y = mixed_.data() + t * width;
      rms_norm(compute, y, weights.norm, config_.rms_norm_eps, config_.linear_value_heads, dv, y);
      compute.kernels().swiglu(z_.data() + t * width, y, y, width);
    }
  });
}

void DeltaNet::forward(Compute& compute, const DeltaNetWeights& weights, LayerState& state,
                       const float* u, std::size_t tokens, float* out) {
  const std::size_t window = config_.linear_conv_taps - 1;
  compute.matmul(weights.in_qkv, u, tokens, raw_.data() + window * channels_);
  compute.matmul(weights.in_z, u, tokens, z_.data());
  compute.matmul(weights.in_b, u, tokens, b_.data());
  compute.matmul(weights.in_a, u, tokens, a_.data());
  convolve(compute, weights, state, tokens);
  normalise_keys(compute, tokens);
  recur(compute, weights, state, tokens);
  gate_output(compute, weights, tokens);
  compute.matmul(weights.out, mixed_.data(), tokens, out);
}

}  // namespace moepack
