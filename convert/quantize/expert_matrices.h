// An expert's weights as the quantizer works on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "convert/quantize/expert_weights.h"
#include "quant/expert_statistics.h"

namespace moepack {

// Reads experts; what one thread holds.
class ExpertReader {
 public:
  // As float32 with padded rows. The record's checksum is compared first. kCorrupt: a value that is
  // not finite, with where it stands.
  Status read(const ExpertWeights& weights, std::uint32_t layer, std::uint32_t expert,
              ExpertMatrices& out);

 private:
  BlockDecoder decoder_;
  std::vector<std::byte> bytes_;
};

}  // namespace moepack
