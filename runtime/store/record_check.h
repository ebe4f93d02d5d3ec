// Compares a record with its checksum in the manifest, the first time it was read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

// Thread rule: is_due() and passed() need the lock of the owner; compare() may be called from any
// thread without it.
class RecordCheck {
 public:
  // `manifest` outlives the object; `files`: the layer files' paths, for messages.
  RecordCheck(const PackManifest& manifest, const std::vector<std::filesystem::path>& files);

  // False when the record was compared before, or the manifest has no checksums.
  bool is_due(std::uint32_t layer, std::uint32_t expert) const;
  // kCorrupt with file, expert and offset when the bytes are not those of the manifest.
  Status compare(std::uint32_t layer, std::uint32_t expert,
                 std::span<const std::byte> record) const;
  // The record needs no comparison any more.
  void passed(std::uint32_t layer, std::uint32_t expert);

 private:
  const PackManifest& manifest_;
  std::vector<std::string> files_;
  std::vector<bool> passed_;  // [layer * num_experts + expert]
};

}  // namespace moepack
