// Adopts expert packs and resident weights of the flash-moe engines: writes our manifests, with
// checksums, beside data that stay as they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "formats/base/status.h"

namespace moepack {

// The names under which the engines' own manifests are kept.
constexpr const char* kKeptLayoutName = "layout.flash-moe.json";
constexpr const char* kKeptResidentName = "model_weights.flash-moe.json";

struct ImportOptions {
  // A pack directory, or a model directory (one with config.json): then all packs in it and its
  // resident weights.
  std::filesystem::path directory;
  // The model of a pack directory; empty: the directory above it.
  std::filesystem::path model;
  // For packs without a manifest: the format of gate and up, and of down where it differs. Its
  // parameters are used for affine formats and ignored for others.
  std::optional<WeightFormat> expert_format;
  std::optional<WeightFormat> down_format;
  unsigned threads = 0;  // 0: one per processor
  bool dry_run = false;  // read and check all but the data, write nothing
};

struct ImportedPack {
  std::string name;         // of the directory
  std::string manifest;     // what described it: a file's name, "--expert-format"
  bool was_native = false;  // had our manifest already: nothing was done
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t page_size = 0;
  std::vector<std::string> formats;  // of the experts' matrices, distinct
  std::uint64_t bytes = 0;           // of the layer files
};

struct ImportReport {
  std::string model;
  std::vector<ImportedPack> packs;
  bool has_residents = false;  // model_weights.json was looked at
  bool residents_were_native = false;
  std::vector<std::string> resident_files;
  std::uint64_t resident_bytes = 0;
  std::uint64_t bytes_read = 0;  // for checksums
  unsigned threads = 0;
  double seconds = 0;
};

// No second import can write to the same directories meanwhile: kInvalidArgument for it.
// Every file is checked before anything is written; each manifest appears whole or not at all,
// after the original was kept as layout.flash-moe.json or model_weights.flash-moe.json. Memory: a
// mebibyte a thread and the manifests.
Result<ImportReport> import_packs(const ImportOptions& options, const ProgressCallback& progress);

}  // namespace moepack
