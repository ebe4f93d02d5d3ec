#include "runtime/stage_model.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "formats/base/bytes.h"
#include "formats/config/architecture.h"

namespace moepack {
namespace {

constexpr std::uint64_t kTensorAlignment = 64;

// The layer in a canonical name, as 7 in "model.layers.7.mlp.gate".
std::optional<std::uint32_t> layer_in(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + kLayers.size());
  std::uint32_t layer = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  if (parsed.ec != std::errc()) return std::nullopt;
  return layer;
}

// Which tensors a range of layers needs.
class StageFilter {
 public:
  StageFilter(const ModelDir& whole, const Architecture& names, const LayerRange& range)
      : range_(range),
        begins_(range.first == 0),
        ends_(range.end == whole.config.num_layers),
        is_tied_(whole.config.tie_word_embeddings) {
    const ResidentRule* rule = find_rule(names, ModuleRole::kEmbedding);
    if (rule != nullptr) embedding_ = rule->name;
  }

  bool needs(const ResidentTensor& tensor) const {
    if (const std::optional<std::uint32_t> layer = layer_in(tensor.name); layer.has_value()) {
      return *layer >= range_.first && *layer < range_.end;
    }
    if (tensor.name == embedding_) return begins_ || (ends_ && is_tied_);
    return ends_;
  }

 private:
  LayerRange range_;
  bool begins_;
  bool ends_;
  bool is_tied_;
  std::string_view embedding_;
};

std::uint64_t memory_of(const ResidentTensor& tensor) {
  return align_up(tensor.bytes.total(), kTensorAlignment);
}

}  // namespace

Result<ModelDir> stage_dir(const ModelDir& whole, const LayerRange& range) {
  MOE_ASSIGN_OR_RETURN(const Architecture* names, architecture_of(whole.config));
  const StageFilter filter(whole, *names, range);
  ModelDir stage = whole;
  stage.config.num_layers = range.count();
  stage.config.layers.assign(whole.config.layers.begin() + range.first,
                             whole.config.layers.begin() + range.end);
  stage.pack.num_layers = range.count();
  stage.pack.layers.assign(whole.pack.layers.begin() + range.first,
                           whole.pack.layers.begin() + range.end);
  std::erase_if(stage.residents.tensors,
                [&](const ResidentTensor& tensor) { return !filter.needs(tensor); });
  stage.residents.data_size = 0;
  for (const ResidentTensor& tensor : stage.residents.tensors) {
    stage.residents.data_size += memory_of(tensor);
  }
  for (ResidentOverlay& overlay : stage.overlays) {
    std::erase_if(overlay.tensors,
                  [&](const OverlayTensor& entry) { return !filter.needs(entry.tensor); });
    overlay.data_size = 0;
    for (const OverlayTensor& entry : overlay.tensors) overlay.data_size += memory_of(entry.tensor);
  }
  return stage;
}

ModelWeights stage_weights(const ModelWeights& whole, const LayerRange& range) {
  ModelWeights stage;
  stage.embedding = whole.embedding;
  stage.lm_head = whole.lm_head;
  stage.final_norm = whole.final_norm;
  stage.layers.assign(whole.layers.begin() + range.first, whole.layers.begin() + range.end);
  return stage;
}

Result<std::vector<std::uint64_t>> layer_sizes(const ModelDir& whole, std::uint64_t slot_bytes) {
  std::vector<std::uint64_t> bytes(whole.config.num_layers);
  for (std::uint32_t l = 0; l < bytes.size(); ++l) bytes[l] = whole.pack.experts_of(l) * slot_bytes;
  for (const ResidentTensor& tensor : whole.residents.tensors) {
    const std::optional<std::uint32_t> layer = layer_in(tensor.name);
    if (layer.has_value() && *layer < bytes.size()) bytes[*layer] += memory_of(tensor);
  }
  return bytes;
}

}  // namespace moepack
