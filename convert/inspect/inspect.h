// What is in a checkpoint, a safetensors or GGUF file, a model directory or a pack. Reads headers,
// manifests and config.json; no weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convert/report/format_tally.h"
#include "convert/report/quality_summary.h"
#include "convert/source/path_kind.h"
#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/pack_manifest.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

struct LayerSummary {
  std::string attention;          // "linear_attention", "full_attention"; "" when unknown
  std::string expert_formats;     // most bytes first, joined by ", "
  std::uint64_t expert_size = 0;  // of one expert; 0 when they differ
  std::uint64_t expert_bytes = 0;
  std::uint64_t resident_bytes = 0;
  friend bool operator==(const LayerSummary&, const LayerSummary&) = default;
};

struct PackSummary {
  std::string name;  // of its directory
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint64_t hidden_size = 0;
  std::uint64_t expert_width = 0;
  std::uint64_t page_size = 0;
  std::uint64_t expert_size = 0;    // of the usual record
  std::uint64_t expert_stride = 0;  // the same padded to the page
  std::size_t num_layouts = 0;
  std::uint64_t bytes = 0;           // of all layer files
  std::vector<FormatTally> formats;  // matrices, most bytes first
  bool has_checksums = false;
  PackSource source;
  std::vector<std::string> skipped_tensors;
  std::vector<std::string> notes;
  std::optional<QualitySummary> quality;  // of a pack with a ledger
  std::vector<LayerSummary> layers;       // experts alone
};

struct ResidentSummary {
  std::string model;
  std::uint64_t bytes = 0;
  std::uint64_t num_tensors = 0;
  std::vector<FormatTally> formats;
  bool has_checksum = false;
  ResidentConventions conventions;
};

// prediction.bin.
struct PredictionSummary {
  std::string source;
  std::string quantization;  // "" where the source declares none
  std::uint64_t num_tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<FormatTally> types;  // as the source calls them, most bytes first
};

// One file of MODEL/gguf.
struct OverlaySummary {
  std::string name;   // of the data file
  std::string group;  // as --overlay takes it
  std::uint64_t matrices = 0;
  std::uint64_t bytes = 0;
  std::vector<FormatTally> formats;
  std::string source;  // "" where it does not say
};

struct CheckpointSummary {
  std::uint64_t num_files = 0;
  std::uint64_t bytes = 0;  // of the tensors
  std::uint64_t num_tensors = 0;
  std::uint64_t fingerprint = 0;
  std::vector<FormatTally> dtypes;  // most bytes first
  // What convert would take for experts and residents. Empty when `problem` says why not.
  std::vector<FormatTally> expert_formats;
  std::vector<FormatTally> resident_formats;
  std::uint64_t expert_bytes = 0;
  std::uint64_t resident_bytes = 0;
  std::vector<std::string> skipped_tensors;
  std::vector<LayerSummary> layers;
  std::string problem;
};

struct GgufKeySummary {
  std::string key;
  std::string type;  // "u32", "string"; of an array that of its elements
  bool is_array = false;
  std::uint64_t count = 1;  // elements
  std::string value;        // for people: one line, cut where it is long
};

struct GgufLayerSummary {
  std::uint32_t layer = 0;
  std::uint64_t num_experts = 0;
  std::string expert_formats;  // most bytes first, joined by ", "
  std::uint64_t expert_bytes = 0;
};

struct GgufSummary {
  std::uint32_t version = 0;
  bool is_big_endian = false;
  std::vector<std::string> files;  // the parts in order
  std::uint64_t num_tensors = 0;
  std::uint64_t bytes = 0;  // of the tensors
  std::uint64_t fingerprint = 0;
  std::string architecture;  // "" when the file does not say
  std::string name;
  std::vector<FormatTally> types;        // as ggml calls them, most bytes first
  std::vector<GgufKeySummary> metadata;  // in the order of the file
  std::vector<GgufLayerSummary> layers;  // those with routed experts
  std::string problem;                   // why there are no layers, when that is wrong
};

struct Inspection {
  PathKind kind = PathKind::kCheckpoint;
  std::string path;           // that was looked into: of a cache, the snapshot
  bool unfinished = false;    // a model that a command has not finished
  std::string unfinished_by;  // "moepack convert"; "" where `unfinished` is not
  std::optional<ModelConfig> config;
  std::optional<CheckpointSummary> checkpoint;  // of checkpoints and safetensors files
  std::optional<GgufSummary> gguf;              // of GGUF files
  std::optional<ResidentSummary> residents;     // of models
  std::optional<PredictionSummary> prediction;  // of models that keep those tensors
  std::vector<OverlaySummary> overlays;         // of models
  std::vector<PackSummary> packs;               // of models and packs
  std::vector<std::string> absent_files;        // companions that a model lacks
  std::vector<std::string> notes;
};

// An unreadable part is an error; a checkpoint that is sound but cannot be converted is not, and
// of an unfinished model whatever is there is reported. `num_worst`: how many of a pack's matrices
// are listed as its worst.
constexpr std::size_t kDefaultWorst = 20;
Result<Inspection> inspect_path(const std::filesystem::path& path,
                                std::size_t num_worst = kDefaultWorst);

struct ListedTensor {
  std::string name;
  std::string dtype;   // as safetensors names it, in GGUF files as ggml does
  std::string format;  // "q4 g64", of a weight whose format is known; else ""
  std::vector<std::uint64_t> shape;
  std::string file;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;
};
using TensorVisitor = std::function<void(const ListedTensor&)>;

// Every tensor, one after another: those of a checkpoint or GGUF file by name, the residents of a
// model and what it keeps of its prediction block, then the components of every expert of every
// pack.
Status list_tensors(const std::filesystem::path& path, const TensorVisitor& visit);

// "q4 g64, bf16".
std::string format_names(const std::vector<FormatTally>& tallies);

}  // namespace moepack
