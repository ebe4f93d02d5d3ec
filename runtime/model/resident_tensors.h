// The bytes of a model's resident tensors in memory, with overlays in place of what they stand for.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/model_dir.h"

namespace moepack {

// Bytes of the logical data that an overlay replaces, and that therefore take no memory.
struct ResidentHole {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;  // a multiple of kResidentAlignment, so that what follows stays aligned
};

struct LoadedTensor {
  const ResidentTensor* tensor = nullptr;    // in the ModelDir's manifests
  std::byte* data = nullptr;                 // the memory of the tensor's data file
  std::span<const ResidentHole> holes = {};  // in that file, ascending; they outlive the tensor
  ResidentConventions::VHeads v_heads = ResidentConventions::VHeads::kGrouped;
  std::string file;  // the manifest, for messages
  bool is_overlay = false;

  // Where the byte lies that the manifest gives this offset.
  std::byte* at(std::uint64_t offset) const;
};

// The most memory that the residents of `model` take, overlays included: what load() allocates.
std::uint64_t resident_memory(const ModelDir& model);

// Move-only; `model` outlives it.
class ResidentTensors {
 public:
  // Reads all data files whole, with so many threads (ordered_read.h), and checks their checksums
  // where there are some. What an overlay replaces is read for the checksum alone and takes no
  // memory.
  static Result<ResidentTensors> load(const ModelDir& model, std::size_t threads);

  // nullptr when the model has none of that name.
  LoadedTensor* find(std::string_view name);
  // The memory that the tensors' bytes lie in.
  std::vector<AlignedBuffer> take_buffers() { return std::move(buffers_); }

 private:
  Status load_base(const ModelDir& model, std::size_t threads);
  Status load_overlay(const ModelDir& model, const ResidentOverlay& overlay, std::size_t threads);

  std::vector<AlignedBuffer> buffers_;
  std::vector<ResidentHole> holes_;  // of the model's own data
  std::map<std::string, LoadedTensor, std::less<>> tensors_;
};

}  // namespace moepack
