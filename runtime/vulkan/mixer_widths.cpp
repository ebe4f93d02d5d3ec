#include "runtime/vulkan/mixer_widths.h"

#include <algorithm>

#include "runtime/model/layer_state.h"
#include "runtime/vulkan/attention_widths.h"

namespace moepack {

MixerWidths mixer_widths(const ModelConfig& c) {
  const AttentionWidths attention = attention_widths(c);
  const bool is_latent = c.kv_rank != 0;
  MixerWidths widths;
  widths.delta_values = std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
  widths.latent = is_latent ? std::uint64_t{c.kv_rank} + c.rotary_dim : 0;
  widths.projected = std::max<std::uint64_t>(conv_channels(c),
                                             is_latent ? attention.queries : 2 * attention.queries);
  widths.keys = std::max(attention.keys, widths.latent);
  widths.values = attention.keys;
  widths.mixed = std::max(is_latent ? std::uint64_t{c.num_heads} * c.value_dim : attention.queries,
                          widths.delta_values);
  return widths;
}

std::uint64_t other_activations(const ModelConfig& c, std::uint64_t shared_width,
                                std::uint64_t rows) {
  const std::uint64_t slots = std::uint64_t{c.experts_per_token} + 1;
  return std::max(shared_width == c.expert_width ? 0 : rows * slots * shared_width,
                  c.dense_width == c.expert_width ? 0 : rows * c.dense_width);
}

}  // namespace moepack
