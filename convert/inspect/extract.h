// One tensor out of a checkpoint, a GGUF file, a model directory or a pack, as it is stored or
// decoded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convert/job/byte_sink.h"
#include "formats/base/status.h"

namespace moepack {

struct ExtractOptions {
  std::filesystem::path path;  // as find_path_kind tells them apart
  // A checkpoint's or GGUF file's own name, or (not of single files) a canonical one
  // ("model.layers.0.self_attn.q_proj", "model.layers.3.mlp.experts.17.gate_proj"), with or without
  // .weight.
  std::string tensor;
  std::string pack;     // of a model directory: as choose_pack takes it
  bool as_f32 = false;  // decoded, little-endian float32, row-major
};

struct ExtractedTensor {
  std::string name;                  // full, as found
  std::string dtype;                 // of the bytes written, as safetensors names it
  std::vector<std::uint64_t> shape;  // of the bytes written
  std::uint64_t bytes = 0;           // written
  std::string file;                  // where the stored bytes lie
  std::uint64_t offset = 0;
};

// kNotFound: there is no such tensor, and the message has the nearest names; kUnsupported: its
// dtype cannot be decoded.
Result<ExtractedTensor> extract_tensor(const ExtractOptions& options, const ByteSink& sink);

}  // namespace moepack
