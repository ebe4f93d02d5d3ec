#include "runtime/model/model_fingerprint.h"

#include <bit>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/checksum.h"

namespace moepack {
namespace {

void add_shapes(const ModelConfig& c, std::vector<std::uint64_t>& numbers) {
  numbers.insert(numbers.end(),
                 {c.vocab_size, c.hidden_size, c.num_layers, c.num_experts, c.experts_per_token,
                  c.expert_width, c.shared_expert_width, c.num_heads, c.num_kv_heads, c.head_dim,
                  c.rotary_dim, c.linear_key_heads, c.linear_value_heads, c.linear_key_dim,
                  c.linear_value_dim, c.linear_conv_taps});
}

std::uint64_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

void add_mixer(const FullAttentionSpec& mixer, std::vector<std::uint64_t>& numbers) {
  numbers.insert(numbers.end(), {mixer.has_gate, static_cast<std::uint64_t>(mixer.norm),
                                 mixer.clip.has_value(), bits_of(mixer.clip.value_or(0.0F))});
}
void add_mixer(const GatedDeltaNetSpec&, std::vector<std::uint64_t>&) {}

// What the configuration says beside shapes: two models of the same weights may differ in it.
void add_layers(const ModelConfig& c, std::vector<std::uint64_t>& numbers) {
  numbers.insert(numbers.end(),
                 {bits_of(c.rms_norm_eps), std::bit_cast<std::uint64_t>(c.rope_theta)});
  for (const LayerSpec& layer : c.layers) {
    numbers.push_back(layer.mixer.index());
    std::visit([&](const auto& mixer) { add_mixer(mixer, numbers); }, layer.mixer);
    numbers.push_back(std::get<SoftmaxRouterSpec>(layer.router).renormalise);
    numbers.push_back(std::get<ExpertsSpec>(layer.feed_forward).has_shared_expert);
  }
}

}  // namespace

std::uint64_t model_fingerprint(const ModelDir& model) {
  ChecksumStream sum;
  std::vector<std::uint64_t> numbers;
  add_shapes(model.config, numbers);
  add_layers(model.config, numbers);
  const ResidentConventions& conventions = model.residents.conventions;
  numbers.insert(numbers.end(), {model.residents.checksum, model.residents.data_size,
                                 static_cast<std::uint64_t>(conventions.norm),
                                 static_cast<std::uint64_t>(conventions.v_heads),
                                 static_cast<std::uint64_t>(conventions.a_log)});
  for (const ResidentOverlay& overlay : model.overlays) {
    const std::string name = overlay.manifest_name();
    sum.add(std::as_bytes(std::span(name)));
    numbers.insert(numbers.end(), {overlay.checksum, overlay.data_size});
  }
  for (std::uint32_t layer = 0; layer < model.pack.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < model.pack.num_experts; ++e) {
      const ExpertEntry& entry = model.pack.layers[layer].experts[e];
      numbers.insert(numbers.end(),
                     {entry.offset, model.pack.layout_of(layer, e).record_bytes, entry.checksum});
    }
  }
  sum.add(std::as_bytes(std::span(numbers)));
  return sum.finish();
}

}  // namespace moepack
