#include "runtime/advice/token_work.h"

#include <map>
#include <string_view>

#include "formats/config/architecture.h"
#include "runtime/speed/recurrent_bytes.h"

namespace moepack {
namespace {

std::map<std::string_view, const ResidentTensor*> tensors_of(const ModelDir& dir) {
  std::map<std::string_view, const ResidentTensor*> tensors;
  for (const ResidentTensor& tensor : dir.residents.tensors) tensors[tensor.name] = &tensor;
  for (const ResidentOverlay& overlay : dir.overlays) {
    for (const OverlayTensor& entry : overlay.tensors) {
      tensors[entry.tensor.name] = &entry.tensor;
    }
  }
  return tensors;
}

double mean_record(const PackManifest& pack) {
  double bytes = 0;
  double records = 0;
  for (const LayerEntry& layer : pack.layers) {
    for (const ExpertEntry& expert : layer.experts) {
      bytes += static_cast<double>(pack.layouts[expert.layout].record_bytes);
      ++records;
    }
  }
  return records > 0 ? bytes / records : 0;
}

}  // namespace

Result<TokenWork> token_work(const ModelDir& dir, DeltaForm form) {
  MOE_ASSIGN_OR_RETURN(const Architecture* names, architecture_of(dir.config));
  const ResidentRule* embedding = find_rule(*names, ModuleRole::kEmbedding);
  const ResidentRule* head = find_rule(*names, ModuleRole::kOutputHead);
  TokenWork work{.layers = dir.pack.num_layers,
                 .experts_per_token = dir.config.experts_per_token,
                 .record_bytes = mean_record(dir.pack),
                 .state_bytes = recurrent_token_bytes(dir.config, form)};
  for (const auto& [name, tensor] : tensors_of(dir)) {
    auto bytes = static_cast<double>(tensor->bytes.total());
    const bool is_table = embedding != nullptr && name == embedding->name;
    const double row = tensor->rows > 0 ? bytes / static_cast<double>(tensor->rows) : 0;
    if (is_table && dir.config.tie_word_embeddings) work.head_bytes = bytes;
    if (head != nullptr && name == head->name) work.head_bytes = bytes;
    if (is_table) bytes = dir.config.tie_word_embeddings ? bytes + row : row;
    work.resident_bytes += bytes;
  }
  return work;
}

}  // namespace moepack
