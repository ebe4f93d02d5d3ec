// model_weights.json of the flash-moe engines, read into our own ResidentManifest. It lists tensors
// by offset, size, shape and dtype under MLX's names without "language_model.", states no formats
// and carries a `config` block that is wrong for most models: dimensions come from config.json.
//
// The conventions are MLX's: norms as they multiply, V heads grouped, A_log, conv1d [C, T] or
// [C, T, 1]. A quantized module is U32 codes with scales and biases; its width and group follow
// from the shapes and the inputs that config.json gives the module. Tensors of other parts (vision,
// multi-token prediction, routed experts) are left out.
//
// The data stand in model_weights.bin, or in the chunks that a `split` block names; the first chunk
// may also be called model_weights_0.bin.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

// Parses the text alone (fuzz target). Each of the result's `files` ends with its last tensor, and
// data_size with the last of all; has_checksum is false.
Result<ResidentManifest> parse_flashmoe_resident(std::string_view text, const std::string& file,
                                                 const ModelConfig& config);
// Reads the engines' `directory`/model_weights.json, finds the data files and checks their sizes,
// which may exceed the last tensor's end by padding.
Result<ResidentManifest> read_flashmoe_resident(const std::filesystem::path& directory,
                                                const ModelConfig& config);

// Reads `directory`/model_weights.json, whether moepack or the engines' tools wrote it.
Result<ResidentManifest> read_model_residents(const std::filesystem::path& directory,
                                              const ModelConfig& config);

}  // namespace moepack
