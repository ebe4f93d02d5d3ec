#include "convert/job/unfinished_layers.h"

#include <algorithm>

namespace moepack {

std::vector<std::uint32_t> unfinished_layers(const PackManifest& pack,
                                             std::span<const std::uint32_t> wanted,
                                             const ConversionJournal& journal) {
  std::vector<std::uint32_t> layers;
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    if (pack.experts_of(l) == 0 || journal.layer_checksums(l) != nullptr) continue;
    const bool is_wanted =
        wanted.empty() || std::find(wanted.begin(), wanted.end(), l) != wanted.end();
    if (is_wanted) layers.push_back(l);
  }
  return layers;
}

}  // namespace moepack
