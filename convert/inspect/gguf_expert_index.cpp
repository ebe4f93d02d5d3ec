#include "convert/inspect/gguf_expert_index.h"

#include <string>

#include "convert/job/text_sink.h"
#include "convert/source/gguf_experts.h"
#include "formats/base/json_fields.h"
#include "formats/weights/format_json.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;

// The shape for whoever reads the bytes: the last dimension of blocks counts the bytes of a row.
std::vector<std::uint64_t> stored_shape(const GgufExpertComponent& component) {
  const GgmlType& type = component.tensor->info->type;
  std::vector<std::uint64_t> shape = component.shape;
  if (type.block_values > 1) shape.back() = shape.back() / type.block_values * type.block_bytes;
  return shape;
}

std::string entry_text(const GgufExpertComponent& component) {
  const GgufTensorInfo& info = *component.tensor->info;
  const std::string file = fs::path(component.tensor->part->file().path()).filename().string();
  std::string text = json_quote(component.name) + ": {\"file\": " + json_quote(file) +
                     ", \"abs_offset\": " + std::to_string(info.offset + component.begin) +
                     ", \"expert_stride\": " + std::to_string(component.stride) +
                     ", \"expert_size\": " + std::to_string(component.expert_size) +
                     ", \"total_size\": " + std::to_string(info.size) +
                     ", \"shape\": " + shape_text(stored_shape(component)) +
                     ", \"dtype\": " + json_quote(dtype_name(info.type.storage));
  if (info.type.block_values > 1) {
    text += ", \"ggml_type\": " + json_quote(ggml_type_name(info.type));
  }
  return text + "}";
}

Status check_source(const GgufModel& model, const std::vector<GgufExpertLayer>& layers) {
  const Where where{.file = model.parts().front().file().path()};
  if (layers.empty()) {
    return unsupported(where, "holds no stacked experts (blk.N.ffn_gate_exps.weight and the like)",
                       "it is of a model without experts, or its first part alone");
  }
  for (const GgufFile& part : model.parts()) {
    if (!part.is_big_endian()) continue;
    return unsupported({.file = part.file().path()},
                       "is big-endian, so its experts cannot be used where they lie",
                       "use a little-endian file");
  }
  return Status::ok();
}

}  // namespace

Result<ExpertIndexSummary> write_gguf_expert_index(const fs::path& path, const ByteSink& sink) {
  MOE_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open(path));
  MOE_ASSIGN_OR_RETURN(const std::vector<GgufExpertLayer> layers, find_gguf_experts(model));
  MOE_RETURN_IF_ERROR(check_source(model, layers));
  ExpertIndexSummary summary{.directory = path.parent_path().string()};
  if (summary.directory.empty()) summary.directory = ".";
  summary.num_layers = static_cast<std::uint32_t>(layers.size());
  summary.num_experts = static_cast<std::uint32_t>(layers.front().num_experts);
  TextSink text(sink);
  MOE_RETURN_IF_ERROR(
      text.add("{\"model_path\": " + json_quote(summary.directory) + ", \"expert_reads\": {"));
  std::string_view separator = "\n  ";
  for (const GgufExpertLayer& layer : layers) {
    MOE_RETURN_IF_ERROR(
        text.add(std::string(separator) + json_quote(std::to_string(layer.layer)) + ": {"));
    separator = "\n    ";
    for (const GgufExpertComponent& component : layer.components) {
      MOE_RETURN_IF_ERROR(text.add(std::string(separator) + entry_text(component)));
      summary.expert_bytes += component.expert_size * layer.num_experts;
      separator = ",\n    ";
    }
    MOE_RETURN_IF_ERROR(text.add("}"));
    separator = ",\n  ";
  }
  MOE_RETURN_IF_ERROR(text.add("\n}}\n"));
  MOE_RETURN_IF_ERROR(text.flush());
  summary.index_bytes = text.bytes();
  return summary;
}

}  // namespace moepack
