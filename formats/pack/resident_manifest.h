// model_weights.json + model_weights.bin: every tensor that is not a routed expert, under canonical
// names, each component (formats/weights/component.h) 64-byte aligned. Schema and an example:
// docs/pack-format.md.
//
// Canonical names are those of the text model without wrapper prefixes: "model.embed_tokens",
// "model.layers.3.self_attn.q_proj", "model.norm", "lm_head". The files carry the components as
// NAME.weight, NAME.scales, NAME.biases; A_log and dt_bias stand as they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/weights/qformat.h"

namespace moepack {

constexpr std::uint32_t kResidentFormatVersion = 1;
constexpr const char* kResidentManifestName = "model_weights.json";
constexpr const char* kResidentDataName = "model_weights.bin";
constexpr std::uint64_t kResidentAlignment = 64;

// What sources do differently. Written to the manifest and required by the reader.
struct ResidentConventions {
  // RMSNorm multiplies by w ("plain") or by 1 + w ("one_plus"), for all norms but linear_attn.norm.
  enum class Norm : std::uint8_t { kPlain, kOnePlus } norm = Norm::kPlain;
  // V head h of GatedDeltaNet uses K head h / r ("grouped") or h % num_key_heads ("tiled").
  enum class VHeads : std::uint8_t { kGrouped, kTiled } v_heads = VHeads::kGrouped;
  // linear_attn.A_log holds A_log ("log") or -exp(A_log) ("neg_exp").
  enum class ALog : std::uint8_t { kLog, kNegExp } a_log = ALog::kLog;
  // conv1d weights, both [channels][taps] in memory with the oldest tap first; how the shape is
  // written: [C, 1, T] ("c1t") or [C, T, 1] ("ct1").
  enum class Conv1d : std::uint8_t { kC1T, kCT1 } conv1d = Conv1d::kC1T;

  friend bool operator==(const ResidentConventions&, const ResidentConventions&) = default;
};

struct ResidentTensor {
  std::string name;               // canonical module name, or tensor name for A_log and dt_bias
  bool has_weight_suffix = true;  // components are NAME.weight …; false: the tensor is NAME
  WeightFormat format;
  std::vector<std::uint64_t> shape;  // logical, of the decoded tensor
  std::uint64_t rows = 0;            // product of all dimensions but the last (1-D: 1)
  std::uint64_t cols = 0;

  // Of the components that the format has: bytes into the data, in model_weights.bin multiples
  // of 64.
  Components<std::uint64_t> offsets = {};
  MatrixBytes bytes;
};

// One of several data files, or one that convert did not write (formats/pack/resident_files.h).
struct ResidentFile {
  std::string name;         // beside the manifest
  std::uint64_t begin = 0;  // the logical offset of its first byte
  std::uint64_t size = 0;   // bytes, exact

  friend bool operator==(const ResidentFile&, const ResidentFile&) = default;
};

struct ResidentManifest {
  std::vector<ResidentTensor> tensors;  // sorted by name
  ResidentConventions conventions;
  std::uint64_t data_size = 0;  // of model_weights.bin, exact; end of the last of `files`
  // Files of the flash-moe engines, ascending: offsets need not be aligned and gaps are allowed.
  // Empty: model_weights.bin as convert writes it.
  std::vector<ResidentFile> files;
  bool has_checksum = true;    // false: read from a manifest of the flash-moe engines
  std::uint64_t checksum = 0;  // XXH3-64 of the files' bytes, one after the other
  std::string model;           // base name of the source
  std::string config_json;     // flash-moe's `config` block for its engines; "" for none
};

std::string resident_manifest_text(const ResidentManifest& manifest);
Status write_resident_manifest(const std::filesystem::path& directory,
                               const ResidentManifest& manifest);
Result<ResidentManifest> parse_resident_manifest(std::string_view text, const std::string& file);
// Reads `directory`/model_weights.json and checks the sizes of the data files. That of the
// flash-moe engines: formats/flashmoe/flashmoe_resident.h.
Result<ResidentManifest> read_resident_manifest(const std::filesystem::path& directory);

}  // namespace moepack
