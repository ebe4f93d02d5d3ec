// Where the layer files of a pack lie: in its own directory, and in further ones (--pack-dir) with
// copies of it on other disks, or with the layers that its own directory does not have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

struct PackFiles {
  // All there are, layer by layer; "" may stand for that of a layer without experts.
  std::vector<std::filesystem::path> files;
  std::vector<std::uint32_t> places;  // [files] whose directory: 0 is the pack's own
  // [layers] indices into files, at least one each, none where the layer has no experts; the pack's
  // own directory first.
  std::vector<std::vector<std::uint32_t>> of_layer;
  std::uint32_t num_places = 1;

  bool has_further() const { return num_places > 1; }
  // One of them; empty where no layer has experts, as with a device's dense layers.
  std::filesystem::path first() const;
};

// Bytes of the pack's largest record; 0 where no layer has experts.
std::uint64_t largest_record_bytes(const PackManifest& manifest);

// The pack's own directory alone.
PackFiles own_pack_files(const std::filesystem::path& directory, const PackManifest& manifest);

// With `further` directories too. The message names the file that does not belong: kCorrupt for a
// layer file of another size or a layout.json that says something else, kNotFound for a layer that
// lies nowhere or a directory without any, kInvalidArgument for a directory that is named twice,
// kUnsupported for a pack without checksums, whose copies cannot be told from others.
Result<PackFiles> find_pack_files(const std::filesystem::path& directory,
                                  const PackManifest& manifest,
                                  std::span<const std::filesystem::path> further);

}  // namespace moepack
