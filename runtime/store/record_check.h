// Compares the checksum of a record with that in the manifest, the first time it was read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// Thread rule: needs the lock of the owner.
class RecordCheck {
 public:
  // `manifest` outlives the object; `files`: the layer files' paths, for messages.
  RecordCheck(const PackManifest& manifest, const std::vector<std::filesystem::path>& files);

  // False when the record was compared before, or the manifest has no checksums.
  bool is_due(std::uint32_t layer, std::uint32_t expert) const;
  // `sum`: checksum() of the record as it was read. kCorrupt with file, expert and offset when it
  // is not the manifest's; otherwise the record needs no comparison any more.
  Status compare(std::uint32_t layer, std::uint32_t expert, std::uint64_t sum);

 private:
  const PackManifest& manifest_;
  std::vector<std::string> files_;
  std::vector<bool> passed_;  // [layer * num_experts + expert]
};

}  // namespace moepack
