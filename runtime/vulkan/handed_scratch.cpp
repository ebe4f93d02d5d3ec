#include "runtime/vulkan/handed_scratch.h"

#include "runtime/vulkan/mixer_widths.h"
#include "runtime/vulkan/scratch_layout.h"

namespace moepack {
namespace {

// Replaces what is handed on in `layer`.
void lay_out(const ModelConfig& c, std::uint64_t t, ScratchLayout& at, HandedLayer& layer) {
  DeviceScratch& s = layer.scratch;
  lay_out_mixer(c, t, at, s);
  s.activated = at.floats(t * (c.experts_per_token + 1) * c.expert_width);
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
  HandedLayer layer;
  lay_out(c, rows, at, layer);
  return at.next();
}

std::uint64_t hidden_bytes(const ModelConfig& c) {
  ScratchLayout at(0);
  (void)at.floats(std::uint64_t{kFewRows} * c.hidden_size);
  return at.next();
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

HandedLayer HandedScratch::of_layer(std::uint32_t layer, std::uint64_t rows) const {
  ScratchLayout at(base_.handed + hidden_bytes(config_) +
                   config_.num_layers * logits_bytes(config_) + layer * layer_bytes(config_, rows));
  HandedLayer handed{.scratch = base_};
  lay_out(config_, rows, at, handed);
  handed.scratch.router_logits = router_logits(config_, base_, layer);
  handed.scratch.shared_logits = shared_logits(config_, base_, layer);
  return handed;
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
