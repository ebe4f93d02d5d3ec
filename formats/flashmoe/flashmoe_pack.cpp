#include "formats/flashmoe/flashmoe_pack.h"

#include <algorithm>
#include <bit>

#include "formats/base/bytes.h"

namespace moepack {
namespace {

// The most experts of all layers together; Kimi K2 has 23,040. It bounds what a short manifest can
// make a reader allocate.
constexpr std::uint64_t kMaxExperts = std::uint64_t{1} << 20;

}  // namespace

PackDimensions pack_dimensions(const ModelConfig& config) {
  return {.hidden_size = config.hidden_size,
          .expert_width = config.expert_width,
          .num_layers = config.num_layers,
          .num_experts = config.num_experts};
}

Result<PackManifest> uniform_pack(const PackDimensions& dims, const ExpertLayout& layout) {
  if (std::uint64_t{dims.num_layers} * dims.num_experts > kMaxExperts) {
    return unsupported(Where{}, std::to_string(dims.num_layers) + " layers of " +
                                    std::to_string(dims.num_experts) +
                                    " experts are more than a pack may hold, " +
                                    std::to_string(kMaxExperts));
  }
  PackManifest manifest;
  manifest.num_layers = dims.num_layers;
  manifest.num_experts = dims.num_experts;
  manifest.hidden_size = dims.hidden_size;
  manifest.expert_width = dims.expert_width;
  manifest.has_checksums = false;
  manifest.layouts.push_back(layout);
  for (std::uint32_t l = 0; l < dims.num_layers; ++l) {
    manifest.layers.push_back({.file = layer_file_name(l), .file_size = 0, .experts = {}});
    manifest.layers.back().experts.resize(dims.num_experts);
  }
  place_without_padding(manifest);
  return manifest;
}

void place_without_padding(PackManifest& manifest) {
  std::uint64_t ends = kDefaultPageSize;  // its lowest bit: the largest power that divides all
  for (LayerEntry& layer : manifest.layers) {
    std::uint64_t offset = 0;
    for (ExpertEntry& expert : layer.experts) {
      expert.offset = offset;
      offset += manifest.layouts[expert.layout].record_bytes;
      ends |= offset;
    }
    layer.file_size = offset;
  }
  for (const ExpertLayout& layout : manifest.layouts) ends |= layout.record_bytes;
  manifest.page_size = std::uint64_t{1} << std::countr_zero(ends);
}

bool is_abandoned_q3_record(const PackDimensions& dims, std::uint64_t record_bytes) {
  const WeightFormat down{.id = QFormatId::kQ4, .group_size = 64};
  for (QFormatId id : {QFormatId::kIq3Xxs, QFormatId::kIq4Xs}) {
    const WeightFormat block{.id = id};
    const auto layout =
        make_expert_layout(dims.hidden_size, dims.expert_width, {block, block, down});
    if (layout.has_value() && layout->record_bytes == record_bytes) return true;
  }
  return false;
}

Status abandoned_q3_error(const std::string& file) {
  return unsupported(Where{.file = file},
                     "is flash-moe's abandoned Q3 format, IQ3_XXS gate and up with a 4-bit down",
                     "repack the GGUF with flash-moe's present Q3 tool, or use another pack");
}

}  // namespace moepack
