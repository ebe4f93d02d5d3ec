// An expert's weights as the quantizer works on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "convert/quantize/expert_weights.h"
#include "quant/expert_statistics.h"

namespace moepack {

// Reads experts. Each thread has a reader of its own, which holds its buffers.
class ExpertReader {
 public:
  // Reads an expert as float32 with padded rows, after comparing its record with the checksum.
  // kCorrupt, with the place, for a value that is not finite.
  Status read(const ExpertWeights& weights, std::uint32_t layer, std::uint32_t expert,
              ExpertMatrices& out);

 private:
  BlockDecoder decoder_;
  std::vector<std::byte> bytes_;
};

}  // namespace moepack
