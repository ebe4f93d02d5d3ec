// layout.json: the contract between converter and runtime about one expert pack. Schema and an
// example: docs/pack-format.md. Every number in it is checked against the format table, the other
// numbers and the layer files' sizes when it is read; `report` is for people and is ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/weights/expert_layout.h"

namespace moepack {

constexpr std::uint32_t kPackFormatVersion = 1;
constexpr std::uint32_t kDefaultPageSize = 4096;
constexpr const char* kPackManifestName = "layout.json";
constexpr const char* kDefaultPackName = "packed_experts";
// A file of this name stands in a model directory until its conversion is complete. A directory
// with it is no model; it holds the journal from which the next conversion to it continues.
constexpr const char* kUnfinishedMarker = "moepack.unfinished";

struct ExpertEntry {
  std::uint64_t offset = 0;    // of the record in the layer file; a multiple of the page size
  std::uint32_t layout = 0;    // index into PackManifest::layouts; record size = its record_bytes
  std::uint64_t checksum = 0;  // XXH3-64 of the record_bytes bytes; 0 without checksums
};

// A layer without experts, which has a dense network, has no file and all is empty.
struct LayerEntry {
  std::string file;                  // base name inside the pack's directory, "layer_00.bin"
  std::uint64_t file_size = 0;       // bytes, exact
  std::vector<ExpertEntry> experts;  // [num_experts], by expert id; or none
};

constexpr const char* kImportMethod = "import";  // of packs of other engines, adopted as they are

struct PackSource {
  std::string name;               // base name of the source directory
  std::uint64_t fingerprint = 0;  // Checkpoint::fingerprint
  std::string method;             // how codes were chosen: "copy", "mlx-affine", …
};

struct PackManifest {
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t hidden_size = 0;
  std::uint64_t expert_width = 0;
  std::uint64_t page_size = kDefaultPageSize;  // 1: records follow each other without padding
  std::vector<ExpertLayout> layouts;           // the distinct record layouts
  std::vector<LayerEntry> layers;              // [num_layers]
  bool has_checksums = true;  // false: read from a manifest of the flash-moe engines
  PackSource source;
  std::string report_json;  // an object; "" for none. Written as it is, never read back

  // Records of a layer: num_experts, or 0 where the layer has no experts and no file.
  std::uint32_t experts_of(std::uint32_t layer) const {
    return static_cast<std::uint32_t>(layers[layer].experts.size());
  }
  // Layers that have records.
  std::uint32_t expert_layers() const {
    std::uint32_t count = 0;
    for (const LayerEntry& layer : layers) count += layer.experts.empty() ? 0U : 1U;
    return count;
  }
  // Records of all layers.
  std::uint64_t all_experts() const {
    std::uint64_t sum = 0;
    for (const LayerEntry& layer : layers) sum += layer.experts.size();
    return sum;
  }
  const ExpertLayout& layout_of(std::uint32_t layer, std::uint32_t expert) const {
    return layouts[layers[layer].experts[expert].layout];
  }
};

// True for a name without directories or characters that no tool writes.
bool is_plain_file_name(const std::string& name);
// "layer_00.bin".
std::string layer_file_name(std::uint32_t layer);

// Deterministic text: the same manifest gives the same bytes.
std::string pack_manifest_text(const PackManifest& manifest);
// Writes `directory`/layout.json through a rename.
Status write_pack_manifest(const std::filesystem::path& directory, const PackManifest& manifest);

// Reads and checks the text alone (fuzz target). `file` names it in errors.
Result<PackManifest> parse_pack_manifest(std::string_view text, const std::string& file);
// Checks every layer file's presence and size; `manifest_name` stands in the message. A file that
// `directory` does not have may lie in one of `further`.
Status check_layer_files(const std::filesystem::path& directory, const PackManifest& manifest,
                         std::string_view manifest_name,
                         std::span<const std::filesystem::path> further = {});
// Reads `directory`/layout.json and checks every layer file's presence and size. Manifests of the
// flash-moe engines too: formats/pack_directory.h.
Result<PackManifest> read_pack_manifest(const std::filesystem::path& directory,
                                        std::span<const std::filesystem::path> further = {});

}  // namespace moepack
