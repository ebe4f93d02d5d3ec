// The layers of a pack that is being planned, and their distinct record layouts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// Hands out indices of distinct layouts in order of first use.
class LayoutTable {
 public:
  std::uint32_t index_of(const ExpertLayout& layout) {
    const auto it = std::find(layouts_.begin(), layouts_.end(), layout);
    const auto index = static_cast<std::size_t>(it - layouts_.begin());
    if (it == layouts_.end()) {
      layouts_.push_back(layout);
      uses_.push_back(0);
    }
    ++uses_[index];
    return static_cast<std::uint32_t>(index);
  }

  // Appends a record of this layout to `layer`, at the next multiple of the page size.
  Status place(const ExpertLayout& layout, std::uint64_t page_size, LayerEntry& layer) {
    layer.experts.push_back({.offset = layer.file_size, .layout = index_of(layout), .checksum = 0});
    const auto next = checked_add(layer.file_size, align_up(layout.record_bytes, page_size));
    if (!next.has_value()) return invalid_argument("a layer file would be too large");
    layer.file_size = *next;
    return Status::ok();
  }

  // Puts the layout of most records first, where the manifest states the default.
  void store(PackManifest& pack) {
    const auto usual =
        static_cast<std::uint32_t>(std::max_element(uses_.begin(), uses_.end()) - uses_.begin());
    std::swap(layouts_[0], layouts_[usual]);
    for (LayerEntry& layer : pack.layers) {
      for (ExpertEntry& expert : layer.experts) {
        if (expert.layout == usual) {
          expert.layout = 0;
        } else if (expert.layout == 0) {
          expert.layout = usual;
        }
      }
    }
    pack.layouts = std::move(layouts_);
  }

 private:
  std::vector<ExpertLayout> layouts_;
  std::vector<std::size_t> uses_;
};

inline void set_dimensions(const ModelConfig& config, std::uint64_t page_size, PackManifest& pack) {
  pack.num_layers = config.num_layers;
  pack.num_experts = config.num_experts;
  pack.hidden_size = config.hidden_size;
  pack.expert_width = config.expert_width;
  pack.page_size = page_size;
}

// Plans the layers and layouts of `pack`, whose dimensions are set. experts_of(layer): how many it
// has, 0 for none; layout_of(layer, expert): Result<ExpertLayout>, asked for each in order, its
// errors are passed on. Returns the bytes of all layer files.
template <class ExpertsOf, class LayoutOf>
Result<std::uint64_t> plan_pack_layers(PackManifest& pack, const ExpertsOf& experts_of,
                                       const LayoutOf& layout_of) {
  LayoutTable layouts;
  std::uint64_t bytes = 0;
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    const std::uint32_t experts = experts_of(l);
    if (experts == 0) {
      pack.layers.emplace_back();
      continue;
    }
    LayerEntry layer{.file = layer_file_name(l), .file_size = 0, .experts = {}};
    for (std::uint32_t e = 0; e < experts; ++e) {
      MOE_ASSIGN_OR_RETURN(const ExpertLayout layout, layout_of(l, e));
      MOE_RETURN_IF_ERROR(layouts.place(layout, pack.page_size, layer));
    }
    bytes += layer.file_size;
    pack.layers.push_back(std::move(layer));
  }
  layouts.store(pack);
  return bytes;
}

// The same where each layer with experts has all of the model's.
template <class LayoutOf>
Result<std::uint64_t> plan_pack_layers(PackManifest& pack, const ModelConfig& config,
                                       const LayoutOf& layout_of) {
  const auto experts_of = [&](std::uint32_t layer) {
    return has_experts(config.layers[layer]) ? config.num_experts : 0;
  };
  return plan_pack_layers(pack, experts_of, layout_of);
}

}  // namespace moepack
