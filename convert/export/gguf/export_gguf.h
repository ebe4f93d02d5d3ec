// A model directory becomes one GGUF file, which llama.cpp and others run. Every weight has exactly
// the value that it has in the directory; what ggml's types cannot hold is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "convert/job/options.h"
#include "formats/base/status.h"

namespace moepack {

struct GgufExportOptions {
  std::filesystem::path model;   // as moepack convert writes it
  std::string pack;              // as open_model_dir takes it
  std::filesystem::path output;  // a file that does not exist
  unsigned threads = 0;          // 0: one per processor
};

// Tensors of one of ggml's types.
struct GgufTypeTally {
  std::string type;  // "Q4_1"
  std::uint32_t tensors = 0;
  std::uint64_t bytes = 0;
};

struct GgufExportReport {
  std::string model;
  std::string pack;          // directory name in the model
  std::string architecture;  // general.architecture
  std::uint64_t file_size = 0;
  std::uint32_t num_tensors = 0;
  std::vector<GgufTypeTally> types;  // most bytes first
  // What affine matrices are stored as, "q2 g64 as Q4_1", and of how many tensors.
  std::vector<std::pair<std::string, std::uint32_t>> blocks;
  std::vector<std::string> notes;  // what the user should know, one sentence each
  double seconds = 0;
};

// Everything is checked before the first byte is written, and the file appears whole or not at all;
// the same model gives the same bytes for any number of threads. kInvalidArgument: `output` exists;
// kUnsupported: something that the file cannot represent exactly, named; kCorrupt: the model's
// checksums are not those of its manifests.
Result<GgufExportReport> export_gguf(const GgufExportOptions& options,
                                     const ProgressCallback& progress);

}  // namespace moepack
