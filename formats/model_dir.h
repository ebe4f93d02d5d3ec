// A model directory as `moepack convert` or the flash-moe engines write it: which files make up a
// model, and which of its expert packs is meant.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"
#include "formats/pack/resident_overlay.h"
#include "formats/pack_directory.h"

namespace moepack {

struct ModelDir {
  std::filesystem::path path;
  ModelConfig config;
  ResidentManifest residents;
  std::filesystem::path pack_path;
  PackManifest pack;
  std::vector<ResidentOverlay> overlays;  // those that were asked for
};

// Names of the directories inside `model` that hold a pack with a manifest, ours or flash-moe's
// (formats/pack_directory.h), sorted, and of those with a pack's name also what cannot be read. LZ4
// packs and unfinished ones are never among them.
Result<std::vector<std::string>> list_packs(const std::filesystem::path& model);

// The error of a directory that holds a pack which list_packs leaves out: without a manifest,
// unfinished or LZ4. Ok for any other path.
Status check_is_listed(const std::filesystem::path& pack);

// The directory name of the pack that `wanted` means: "NAME" for packed_experts_NAME or a
// directory's whole name; "" for packed_experts, else the only pack there is; anything else is
// kNotFound with the list of packs. A pack that is meant but has no manifest, or is compressed, is
// named with what to do.
Result<std::string> choose_pack(const std::filesystem::path& model, const std::string& wanted);

// kCorrupt unless the pack, read from `pack_path`, has the dimensions of `config`.
Status check_pack_fits(const ModelConfig& config, const PackManifest& pack,
                       const std::filesystem::path& pack_path);

// kCorrupt where a command has not finished `model`; the message says which and what to do.
Status check_model_finished(const std::filesystem::path& model);

// Reads the configuration and the manifests and checks them against each other. `pack_name` as
// choose_pack takes it; a pack that is meant but has no manifest is named, with what to do.
// `overlays`: what is to stand in for the model's own residents. `further`: where layer files may
// lie that the pack's directory does not have.
Result<ModelDir> open_model_dir(const std::filesystem::path& model, const std::string& pack_name,
                                std::span<const OverlayGroup> overlays = {},
                                std::span<const std::filesystem::path> further = {});

}  // namespace moepack
