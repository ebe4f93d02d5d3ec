#include "runtime/model/model_fingerprint.h"

#include <span>
#include <string>
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
  for (const LayerSpec& spec : c.layers) {
    numbers.push_back(static_cast<std::uint64_t>(layer_type(spec)));
  }
}

}  // namespace

std::uint64_t model_fingerprint(const ModelDir& model) {
  ChecksumStream sum;
  std::vector<std::uint64_t> numbers;
  add_shapes(model.config, numbers);
  numbers.insert(numbers.end(), {model.residents.checksum, model.residents.data_size});
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
