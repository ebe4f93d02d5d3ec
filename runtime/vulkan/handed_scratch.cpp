#include "runtime/vulkan/handed_scratch.h"

#include <array>

#include "runtime/vulkan/mixer_widths.h"
#include "runtime/vulkan/scratch_layout.h"

namespace moepack {
namespace {

// Of one layer.
struct Layer {
  DeviceScratch scratch;
  std::uint64_t behind_mixer = 0;
  std::array<std::uint64_t, HandedScratch::kMostKinds> behind_kinds{};
};

// Replaces what is handed on in `layer.scratch`.
void lay_out(const ModelConfig& c, std::uint64_t t, ScratchLayout& at, Layer& layer) {
  const MixerWidths widths = mixer_widths(c);
  const std::uint64_t pairs = t * (c.experts_per_token + 1);
  DeviceScratch& s = layer.scratch;
  s.projected = at.floats(t * widths.projected);
  s.keys = at.floats(t * widths.keys);
  s.values = at.floats(t * widths.values);
  s.delta_z = at.floats(t * widths.delta_values);
  s.delta_a = at.floats(t * c.linear_value_heads);
  s.delta_b = at.floats(t * c.linear_value_heads);
  s.query_down = at.floats(t * c.query_rank);
  s.mixed = at.floats(t * widths.mixed);
  s.activated = at.floats(pairs * c.expert_width);
  s.shared_activated = at.floats(other_activations(c, c.shared_expert_width, t));
  layer.behind_mixer = at.floats(t * c.hidden_size);
  for (std::uint64_t& hidden : layer.behind_kinds) hidden = at.floats(t * c.hidden_size);
}

std::uint64_t logits_bytes(const ModelConfig& c) {
  ScratchLayout at(0);
  (void)at.floats(std::uint64_t{kFewRows} * c.num_experts);
  (void)at.floats(kFewRows);
  return at.next();
}

std::uint64_t layer_bytes(const ModelConfig& c, std::uint64_t rows) {
  ScratchLayout at(0);
  Layer layer;
  lay_out(c, rows, at, layer);
  return at.next();
}

std::uint64_t hidden_bytes(const ModelConfig& c) {
  ScratchLayout at(0);
  (void)at.floats(std::uint64_t{kFewRows} * c.hidden_size);
  return at.next();
}

Layer layer_at(const ModelConfig& c, const DeviceScratch& base, std::uint32_t index,
               std::uint64_t rows) {
  ScratchLayout at(base.handed + c.num_layers * logits_bytes(c) + hidden_bytes(c) +
                   index * layer_bytes(c, rows));
  Layer layer{.scratch = base};
  lay_out(c, rows, at, layer);
  return layer;
}

}  // namespace

std::uint64_t HandedScratch::bytes(const ModelConfig& config, std::uint64_t rows) {
  return hidden_bytes(config) +
         config.num_layers * (logits_bytes(config) + layer_bytes(config, rows));
}

HandedScratch::Range HandedScratch::cleared(std::uint64_t rows) const {
  const std::uint64_t before = hidden_bytes(config_);
  return {.address = base_.handed + before, .bytes = bytes(config_, rows) - before};
}

DeviceScratch HandedScratch::of_layer(std::uint32_t layer, std::uint64_t rows) const {
  DeviceScratch scratch = layer_at(config_, base_, layer, rows).scratch;
  scratch.router_logits = router_logits(config_, base_, layer);
  scratch.shared_logits = shared_logits(config_, base_, layer);
  return scratch;
}

std::uint64_t HandedScratch::hidden_behind_mixer(std::uint32_t layer, std::uint64_t rows) const {
  return layer_at(config_, base_, layer, rows).behind_mixer;
}

std::uint64_t HandedScratch::hidden_behind(std::uint32_t kind, std::uint32_t layer,
                                           std::uint64_t rows) const {
  return layer_at(config_, base_, layer, rows).behind_kinds[kind];
}

std::uint64_t HandedScratch::router_logits(const ModelConfig& config, const DeviceScratch& base,
                                           std::uint32_t layer) {
  return base.handed + hidden_bytes(config) + layer * logits_bytes(config);
}

std::uint64_t HandedScratch::shared_logits(const ModelConfig& config, const DeviceScratch& base,
                                           std::uint32_t layer) {
  ScratchLayout at(router_logits(config, base, layer));
  (void)at.floats(std::uint64_t{kFewRows} * config.num_experts);
  return at.next();
}

}  // namespace moepack
