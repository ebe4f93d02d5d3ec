// The resident data of a model directory, read by the offsets of its manifest, whatever files hold
// them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/status.h"
#include "formats/model_dir.h"

namespace moepack {

class ResidentReader {
 public:
  static Result<ResidentReader> open(const ModelDir& model);

  // Fills `out` from logical offset `offset` on; it lies within one component, and so in one file.
  // Any number of threads.
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const;
  // kCorrupt unless the sum of all bytes is the manifest's, where that states one.
  Status verify(const ModelDir& model) const;

 private:
  struct Part {
    File file;
    std::uint64_t begin;  // logical
  };
  std::vector<Part> files_;
};

}  // namespace moepack
