// The distinct record layouts of a pack that is being planned.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "formats/base/bytes.h"
#include "formats/base/status.h"
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

}  // namespace moepack
