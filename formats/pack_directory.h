// A directory with layer files, whoever wrote it: which manifest describes it, if any.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/flashmoe/flashmoe_pack.h"
#include "formats/pack/pack_manifest.h"

namespace moepack {

enum class PackKind {
  kNone,         // no manifest and no layer files
  kNative,       // our layout.json
  kFlashMoe,     // layout.json or tiered_manifest.json of the flash-moe engines
  kUndescribed,  // layer files without a manifest
  kLz4,          // flash-moe's compressed packs, told by the directory's name
  kUnfinished,   // what a command has not finished (formats/unfinished_work.h)
};

// Looks at names and, for layout.json, at its text. kIo, kCorrupt: it cannot be read.
Result<PackKind> detect_pack(const std::filesystem::path& directory);

// Whether an entry of a model directory is one of its packs, or meant to be: a directory with a
// pack's name, or one in which a manifest stands. What other entries hold is no concern of a model.
bool is_meant_as_pack(const std::filesystem::path& entry);

// Where a flash-moe pack's description stands: tiered_manifest.json if it exists, else layout.json.
const char* flashmoe_manifest_name(const std::filesystem::path& directory);

// Reads the manifest of any kind that has one and checks the layer files' presence and sizes.
// kUnsupported: LZ4 packs and the abandoned Q3 format, by name. kNotFound: no manifest; the message
// says what to do. Packs other than kNative have no checksums. `further`: where layer files of a
// kNative pack may lie that are not in the directory.
Result<PackManifest> read_pack_directory(const std::filesystem::path& directory,
                                         const PackDimensions& dims,
                                         std::span<const std::filesystem::path> further = {});

// Checks the layer files of a pack that was not read from our own manifest. What stands in the way
// of known foreign formats is said by name: kUnsupported for LZ4 packs and the abandoned Q3.
// `manifest_name`: what states the sizes, for the message.
Status check_foreign_layer_files(const std::filesystem::path& directory,
                                 const PackManifest& manifest, const PackDimensions& dims,
                                 std::string_view manifest_name);

// The error of a directory without a manifest, or of an unfinished pack.
Status undescribed_pack_error(const std::filesystem::path& directory);

}  // namespace moepack
