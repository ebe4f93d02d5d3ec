#include "runtime/model/layer_forward.h"

#include <algorithm>
#include <utility>

#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

// Up to so many rows of norms, sums and embeddings stay in the calling thread.
constexpr std::size_t kTokensPerTask = 4;

}  // namespace

LayerForward::LayerForward(const ModelConfig& config, const ModelWeights& weights,
                           const Kernels& kernels, const ActivationLimits& limits,
                           Activations activations)
    : config_(config),
      weights_(weights),
      width_(config.hidden_size),
      max_tokens_(limits.tokens),
      scratch_(std::move(activations)),
      compute_(kernels, limits.threads, scratch_.matmul_scratch, scratch_.input_scratch()),
      attention_(config, scratch_),
      latent_(config, scratch_),
      delta_(config, scratch_),
      moe_(config, scratch_) {}

void LayerForward::embed(std::span<const std::int32_t> tokens, float* hidden) {
  compute_.pool().parallel_for(
      tokens.size(), kTokensPerTask, [&](std::size_t begin, std::size_t end, std::size_t) {
        for (std::size_t t = begin; t < end; ++t) {
          const std::span<float> row(hidden + t * width_, width_);
          decode_row(weights_.embedding, static_cast<std::uint64_t>(tokens[t]), row);
          if (config_.embedding_scale == 1) continue;
          for (float& value : row) value *= config_.embedding_scale;
        }
      });
}

void LayerForward::norm(std::span<const float> factor, std::size_t tokens, const float* hidden,
                        float* out) {
  compute_.pool().parallel_for(
      tokens, kTokensPerTask, [&](std::size_t begin, std::size_t end, std::size_t) {
        rms_norm(compute_, hidden + begin * width_, factor, config_.rms_norm_eps, end - begin,
                 width_, out + begin * width_);
      });
}

void LayerForward::add_mixed_and_norm(const LayerWeights& layer, std::span<const LayerSlice> slices,
                                      std::size_t tokens, float* hidden) {
  compute_.pool().parallel_for(
      tokens, kTokensPerTask, [&](std::size_t begin, std::size_t end, std::size_t) {
        for (std::size_t t = begin; t < end; ++t) {
          float* row = hidden + t * width_;
          float* mixed = scratch_.mixed.data() + t * width_;
          if (slice_of_row(slices, t) == nullptr) {
            std::fill_n(row, width_, 0.0F);
          } else {
            if (!layer.mixer_norm.empty()) {
              rms_norm(compute_, mixed, layer.mixer_norm, config_.rms_norm_eps, 1, width_, mixed);
            }
            for (std::size_t i = 0; i < width_; ++i) row[i] += mixed[i];
          }
          rms_norm(compute_, row, layer.post_norm, config_.rms_norm_eps, 1, width_,
                   scratch_.normed.data() + t * width_);
        }
      });
}

std::span<const float> LayerForward::mix(std::uint32_t index, std::span<const LayerSlice> slices,
                                         std::size_t tokens, float* hidden) {
  const LayerWeights& layer = weights_.layers[index];
  float* normed = scratch_.normed.data();
  float* mixed = scratch_.mixed.data();
  norm(layer.input_norm, tokens, hidden, normed);
  if (const auto* attention = std::get_if<FullAttentionWeights>(&layer.mixer)) {
    const StageScope stage(compute_.times(), Stage::kFullAttention);
    attention_.forward(compute_, *attention, slices, normed, tokens, mixed);
  } else if (const auto* latent = std::get_if<LatentAttentionWeights>(&layer.mixer)) {
    const StageScope stage(compute_.times(), Stage::kFullAttention);
    latent_.forward(compute_, *latent, slices, normed, tokens, mixed);
  } else {
    const StageScope stage(compute_.times(), Stage::kDeltaNet);
    delta_.forward(compute_, std::get<DeltaNetWeights>(layer.mixer), slices, normed, tokens, mixed);
  }
  add_mixed_and_norm(layer, slices, tokens, hidden);
  mixed_tokens_ = tokens;
  const std::span<const float> logits = route_logits(layer.moe, tokens, hidden);
  if (!layer.moe.shared_input_norm.empty()) {
    norm(layer.moe.shared_input_norm, tokens, hidden, mixed);
  }
  return logits;
}

std::span<const float> LayerForward::route_logits(const MoeWeights& moe, std::size_t tokens,
                                                  const float* hidden) {
  if (!moe.has_experts) return {};
  const StageScope stage(compute_.times(), Stage::kRouter);
  if (moe.router_norm.empty()) {
    return moe_.route_logits(compute_, moe, scratch_.normed.data(), tokens);
  }
  norm(moe.router_norm, tokens, hidden, scratch_.mixed.data());
  return moe_.route_logits(compute_, moe, scratch_.mixed.data(), tokens);
}

void LayerForward::silence(std::size_t first, std::size_t count) {
  std::fill_n(scratch_.normed.data() + first * width_, count * width_, 0.0F);
  std::fill_n(scratch_.mixed.data() + first * width_, count * width_, 0.0F);
  std::fill_n(scratch_.router_logits.data() + first * config_.num_experts,
              count * config_.num_experts, 0.0F);
}

Status LayerForward::add_experts(std::uint32_t index, ExpertStore& store, float* hidden,
                                 FunctionRef<void()> last_reads) {
  const MoeWeights& moe = weights_.layers[index].moe;
  return moe_.forward(compute_, moe, index, store, {scratch_.normed.data(), shared_inputs(moe)},
                      mixed_tokens_, hidden, last_reads);
}

void LayerForward::add_dense(std::uint32_t index, float* hidden) {
  const MoeWeights& moe = weights_.layers[index].moe;
  moe_.finish(compute_, moe, nullptr, shared_inputs(moe), mixed_tokens_, hidden);
}

void LayerForward::finish_network(std::uint32_t index, const float* routed, std::size_t tokens,
                                  float* hidden) {
  const LayerWeights& layer = weights_.layers[index];
  const MoeWeights& moe = layer.moe;
  if (moe.shared_input_norm.empty()) {
    norm(layer.post_norm, tokens, hidden, scratch_.normed.data());
  } else {
    norm(moe.shared_input_norm, tokens, hidden, scratch_.mixed.data());
  }
  moe_.finish(compute_, moe, routed, shared_inputs(moe), tokens, hidden);
}

std::span<const float> LayerForward::final_norm(std::span<const std::size_t> rows,
                                                const float* hidden) {
  float* normed = scratch_.normed.data();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rms_norm(compute_, hidden + rows[i] * width_, weights_.final_norm, config_.rms_norm_eps, 1,
             width_, normed + i * width_);
  }
  return scratch_.normed.first(rows.size() * width_);
}

void LayerForward::expert_input(std::uint32_t index, const float* hidden, float* out) {
  rms_norm(compute_, hidden, weights_.layers[index].post_norm, config_.rms_norm_eps, 1, width_,
           out);
}

}  // namespace moepack
