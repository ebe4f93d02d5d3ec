// The bytes of a model's resident tensors in memory, with overlays in place of what they stand for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/model_dir.h"

namespace moepack {

struct LoadedTensor {
  const ResidentTensor* tensor = nullptr;  // in the ModelDir's manifests
  std::byte* data = nullptr;               // what the tensor's offsets count from
  ResidentConventions::VHeads v_heads = ResidentConventions::VHeads::kGrouped;
  std::string file;  // the manifest, for messages
  bool is_overlay = false;
};

// Memory that the residents of `model` take, overlays included.
std::uint64_t resident_memory(const ModelDir& model);

// Move-only; `model` outlives it.
class ResidentTensors {
 public:
  // Reads all data files whole and checks their checksums where there are some. What an overlay
  // replaces is read for the checksum alone and takes no memory.
  static Result<ResidentTensors> load(const ModelDir& model);

  // nullptr when the model has none of that name.
  LoadedTensor* find(std::string_view name);
  // The memory that the tensors' data points into.
  std::vector<AlignedBuffer> take_buffers() { return std::move(buffers_); }

 private:
  Status load_base(const ModelDir& model);
  Status load_overlay(const ModelDir& model, const ResidentOverlay& overlay);

  std::vector<AlignedBuffer> buffers_;
  std::map<std::string, LoadedTensor, std::less<>> tensors_;
};

}  // namespace moepack
