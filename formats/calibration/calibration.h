// A calibration: what the routed experts of every layer were given when a text ran through the
// model, and how the router chose. Written by `moepack calibrate`, read by the quantizer.
//
//   CALIB/calibration.json      the manifest below; written last: a directory with it is whole
//   CALIB/layer_00.bin.zst …    one file a layer, zstd frames one after another; decompressed:
//       inputs   bf16 [tokens, hidden_size]         output of the post-attention norm, each token
//                                                   once; in byte planes, see below
//       experts  u16  [tokens, experts_per_token]   by falling router weight
//       weights  f32  [tokens, experts_per_token]   as the runtime uses them (they sum to 1)
//
// Byte planes: each run of 524,288 inputs (the last run is shorter) is stored as all its low bytes,
// then all its high bytes. Of a trained model's activations in this order zstd level 1 leaves
// 67.7 %, of plain values 77.7 % (small-moe, layer 4, 296,656 tokens); higher levels gain nothing.
//
// Schema and an example: docs/calibration-format.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

constexpr std::uint32_t kCalibrationFormatVersion = 1;
constexpr const char* kCalibrationManifestName = "calibration.json";
// An expert with fewer calibration tokens than this is called starved: it leans on the others'
// inputs when it is quantized. The number is flash-moe's, which forms no Hessian below it.
constexpr std::uint64_t kStarvedTokens = 64;

// Of a layer without experts all is empty.
struct CalibrationLayer {
  std::string file;                    // base name, "layer_00.bin.zst"
  std::uint64_t file_size = 0;         // compressed bytes, exact
  std::uint64_t checksum = 0;          // XXH3-64 of the compressed bytes
  std::vector<std::uint64_t> samples;  // [num_experts]: tokens that chose each expert

  bool has_experts() const { return !samples.empty(); }
};

// What an error in the outputs of one layer's experts does to the predictions: a mean squared error
// of e a token, summed over hidden units, gives a KL divergence of the next token of
// per_energy * e + per_amplitude * sqrt(e) nats (runtime/corpus/divergence_response.h).
struct DivergenceResponse {
  double per_energy = 0;
  double per_amplitude = 0;
};

struct CalibrationManifest {
  std::string model;                     // base name of the model directory
  std::uint64_t source_fingerprint = 0;  // of the pack's source (PackSource); 0: unknown
  std::uint64_t residents_checksum = 0;  // of model_weights.bin; 0: unknown
  std::uint32_t num_layers = 0;
  std::uint32_t num_experts = 0;
  std::uint32_t experts_per_token = 0;
  std::uint64_t hidden_size = 0;
  std::uint64_t expert_width = 0;
  std::uint64_t tokens = 0;                  // rows of every layer
  std::uint32_t context = 0;                 // tokens of a window; each started from a fresh state
  std::vector<DivergenceResponse> response;  // [num_layers], or empty: not measured
  std::vector<CalibrationLayer> layers;      // [num_layers]
};

// One layer in memory: tokens * (2 * hidden_size + 6 * experts_per_token) bytes.
struct LayerActivations {
  std::uint64_t tokens = 0;
  std::uint64_t hidden_size = 0;
  std::uint32_t experts_per_token = 0;
  std::vector<std::uint16_t> inputs;   // [tokens, hidden_size], bf16 bits, all finite
  std::vector<std::uint16_t> experts;  // [tokens, experts_per_token], distinct within a token
  std::vector<float> weights;          // [tokens, experts_per_token], finite, >= 0
};

// The manifest as text, which depends on the manifest alone, and the checked reading of such a text
// (fuzz target). `file` names it in errors.
std::string calibration_manifest_text(const CalibrationManifest& manifest);
Result<CalibrationManifest> parse_calibration_manifest(std::string_view text,
                                                       const std::string& file);
// Reads CALIB/calibration.json and checks every layer file's presence and size. A calibration that
// was not finished is named as such.
Result<CalibrationManifest> read_calibration_manifest(const std::filesystem::path& directory);

// Reads one layer whole, a block at a time from the file, and checks checksum, size, expert ids and
// finiteness. It never takes more memory than the result and a few mebibytes, whatever the file
// claims. May be called from any number of threads.
Result<LayerActivations> read_layer_activations(const std::filesystem::path& directory,
                                                const CalibrationManifest& manifest,
                                                std::uint32_t layer);

// Reads the routing of one layer. The inputs are passed over unseen, so `inputs` is empty, and no
// more memory than 6 bytes a use is taken. Checks and threads as above.
Result<LayerActivations> read_layer_routing(const std::filesystem::path& directory,
                                            const CalibrationManifest& manifest,
                                            std::uint32_t layer);

// Compresses and writes one layer file, which appears when it is whole (AtomicFile). The returned
// entry has everything filled in.
Result<CalibrationLayer> write_layer_activations(const std::filesystem::path& directory,
                                                 std::uint32_t layer, std::uint32_t num_experts,
                                                 const LayerActivations& activations);
// The size in bytes that the layer's file would have, for estimates.
Result<std::uint64_t> compressed_layer_size(const LayerActivations& activations);

}  // namespace moepack
