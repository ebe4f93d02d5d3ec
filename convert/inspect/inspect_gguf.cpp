#include "convert/inspect/inspect_gguf.h"

#include "convert/report/format_tally.h"
#include "convert/source/gguf_experts.h"
#include "formats/gguf/gguf_model.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownChars = 120;  // of a metadata value

std::string file_name(const GgufFile& part) {
  return fs::path(part.file().path()).filename().string();
}

// The string under `key`, or "" where there is none.
Result<std::string> optional_string(const GgufMetadata& metadata, std::string_view key) {
  const GgufEntry* entry = metadata.find(key);
  if (entry == nullptr || entry->type != GgufValueType::kString) return std::string();
  return metadata.string(key);
}

Result<std::vector<GgufKeySummary>> list_keys(const GgufMetadata& metadata) {
  std::vector<GgufKeySummary> keys;
  for (const GgufEntry& entry : metadata.entries()) {
    GgufKeySummary key{.key = entry.key, .type = {}, .count = entry.count, .value = {}};
    key.is_array = entry.type == GgufValueType::kArray;
    key.type = gguf_value_type_name(entry.element);
    MOE_ASSIGN_OR_RETURN(key.value, metadata.text(entry, kShownChars));
    keys.push_back(std::move(key));
  }
  return keys;
}

std::vector<GgufLayerSummary> list_layers(const std::vector<GgufExpertLayer>& experts) {
  std::vector<GgufLayerSummary> layers;
  for (const GgufExpertLayer& layer : experts) {
    GgufLayerSummary summary{.layer = layer.layer,
                             .num_experts = layer.num_experts,
                             .expert_formats = {},
                             .expert_bytes = 0};
    FormatTallies formats;
    for (const GgufExpertComponent& component : layer.components) {
      const std::uint64_t bytes = component.expert_size * layer.num_experts;
      formats.add(ggml_type_name(component.tensor->info->type), bytes);
      summary.expert_bytes += bytes;
    }
    summary.expert_formats = format_names(formats.sorted());
    layers.push_back(std::move(summary));
  }
  return layers;
}

}  // namespace

Result<GgufSummary> summarize_gguf(const fs::path& path) {
  MOE_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(path));
  GgufSummary summary;
  FormatTallies types;
  for (const GgufTensor& tensor : model.tensors()) {
    types.add(ggml_type_name(tensor.info->type), tensor.info->size);
    summary.bytes += tensor.info->size;
  }
  for (const GgufFile& part : model.parts()) summary.files.push_back(file_name(part));
  summary.version = model.parts().front().version();
  summary.is_big_endian = model.parts().front().is_big_endian();
  summary.num_tensors = model.tensors().size();
  summary.fingerprint = model.fingerprint();
  summary.types = types.sorted();
  MOE_ASSIGN_OR_RETURN(summary.architecture,
                       optional_string(model.metadata(), "general.architecture"));
  MOE_ASSIGN_OR_RETURN(summary.name, optional_string(model.metadata(), "general.name"));
  MOE_ASSIGN_OR_RETURN(summary.metadata, list_keys(model.metadata()));
  const auto experts = find_gguf_experts(model);
  if (experts.is_ok()) {
    summary.layers = list_layers(experts.value());
  } else {
    summary.problem = experts.status().message();
  }
  return summary;
}

Status list_gguf_tensors(const fs::path& path, const TensorVisitor& visit) {
  MOE_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(path));
  for (const GgufTensor& tensor : model.tensors()) {
    visit({.name = tensor.info->name,
           .dtype = ggml_type_name(tensor.info->type),
           .format = {},
           .shape = tensor.info->shape,
           .file = file_name(*tensor.part),
           .offset = tensor.info->offset,
           .bytes = tensor.info->size});
  }
  return Status::ok();
}

}  // namespace moepack
