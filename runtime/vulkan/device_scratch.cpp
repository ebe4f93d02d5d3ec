#include "runtime/vulkan/device_scratch.h"

#include <algorithm>

#include "formats/base/bytes.h"
#include "runtime/vulkan/attention_widths.h"
#include "runtime/vulkan/handed_scratch.h"
#include "runtime/vulkan/mixer_widths.h"
#include "runtime/vulkan/scratch_layout.h"
#include "shaders/argmax_args.h"
#include "shaders/route_args.h"

namespace moepack {
namespace {

bool has_branch_norms(const ModelConfig& c) {
  return std::any_of(c.layers.begin(), c.layers.end(), [](const LayerSpec& layer) {
    const auto* experts = std::get_if<ExpertsSpec>(&layer.feed_forward);
    return experts != nullptr && experts->has_branch_norms;
  });
}

DeviceScratch lay_out(const ModelConfig& c, const ScratchLimits& limits, ScratchLayout& at) {
  const std::uint64_t t = limits.rows;
  const std::uint64_t slots = c.experts_per_token + 1;
  const std::uint64_t pairs = t * slots;
  const AttentionWidths widths = attention_widths(c);
  const MixerWidths mixer = mixer_widths(c);
  const std::uint64_t widest = align_up(
      std::max({std::uint64_t{c.hidden_size}, mixer.mixed, std::uint64_t{c.query_rank}}), 32);
  const std::uint64_t width =
      align_up(std::max<std::uint64_t>(c.expert_width, limits.shared_width), 32);
  DeviceScratch s;
  s.hidden = at.floats(t * c.hidden_size);
  s.normed = at.floats(t * c.hidden_size);
  s.branch_normed = at.floats(has_branch_norms(c) ? t * c.hidden_size : 0);
  lay_out_mixer(c, t, at, s);
  s.delta_keys = at.floats(t * 2 * c.linear_key_heads * align_up(c.linear_key_dim, 32));
  s.delta_values = at.floats(t * mixer.delta_values);
  s.delta_factors = at.floats(t * 2 * c.linear_value_heads);
  s.latent_queries = at.floats(t * c.num_heads * mixer.latent);
  const std::uint64_t parts = std::uint64_t{kFewRows} * widths.heads * limits.splits;
  s.split_values = at.floats(parts * std::max<std::uint64_t>(widths.head_dim, c.kv_rank));
  s.split_stats = at.floats(parts * 2);
  s.router_logits = at.floats(t * c.num_experts);
  s.shared_logits = at.floats(t);
  s.choices = at.bytes(pairs * 8);
  s.dense_choices = at.bytes(c.dense_width == 0 ? 0 : t * 8);
  s.routes = at.bytes(c.num_layers * sizeof(shader::RouteArgs));
  s.row_error = at.bytes(t * 4);
  s.arrived = at.bytes(t * 4);
  s.arrived_heads = at.bytes(kFewRows * widths.heads * 4);
  s.pairs = at.bytes(pairs * 4);
  s.offsets = at.bytes((std::uint64_t{c.num_experts} + 2) * 4);
  s.tiles = at.bytes((pairs + c.num_experts + 2) * 12);
  s.grids = at.bytes(256);
  s.activated = at.floats(pairs * c.expert_width);
  s.raised = at.floats(pairs * c.expert_width);
  const std::uint64_t others = other_activations(c, limits.shared_width, t);
  if (others != 0) {
    s.shared_activated = at.floats(others);
    s.shared_raised = at.floats(others);
  }
  s.results = at.floats(pairs * c.hidden_size);
  const std::uint64_t dense = align_up(c.dense_width, 32);
  s.halves = at.bytes(2 * std::max({t * widest, pairs * width, t * dense}));
  s.half_scales = at.floats(pairs);
  s.logits = at.floats(std::uint64_t{kDeviceLogitRows} * c.vocab_size);
  s.tops = at.bytes(std::uint64_t{kDeviceLogitRows} * kTopParts * sizeof(shader::Largest));
  s.arrived_tops = at.bytes(std::uint64_t{kDeviceLogitRows} * 4);
  if (limits.hands_on) {
    s.handed = at.bytes(HandedScratch::bytes(c, std::min<std::uint64_t>(t, kFewRows)));
  }
  return s;
}

}  // namespace

void lay_out_mixer(const ModelConfig& c, std::uint64_t rows, ScratchLayout& at, DeviceScratch& s) {
  const MixerWidths widths = mixer_widths(c);
  s.projected = at.floats(rows * widths.projected);
  s.keys = at.floats(rows * widths.keys);
  s.values = at.floats(rows * widths.values);
  s.delta_z = at.floats(rows * widths.delta_values);
  s.delta_a = at.floats(rows * c.linear_value_heads);
  s.delta_b = at.floats(rows * c.linear_value_heads);
  s.mixed = at.floats(rows * widths.mixed);
  s.query_down = at.floats(rows * c.query_rank);
}

std::uint64_t scratch_bytes(const ModelConfig& config, const ScratchLimits& limits) {
  ScratchLayout layout(0);
  (void)lay_out(config, limits, layout);
  return layout.next();
}

DeviceScratch scratch_at(const ModelConfig& config, const ScratchLimits& limits,
                         std::uint64_t address) {
  ScratchLayout layout(address);
  return lay_out(config, limits, layout);
}

}  // namespace moepack
