// The components of an expert record as manifests list them, in the order of their bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/weights/expert_layout.h"

namespace moepack {

struct LayoutComponent {
  std::string name;          // "gate_proj.weight", "gate_proj.scales", …
  std::uint64_t offset = 0;  // bytes from the start of the record
  std::uint64_t size = 0;
  DType dtype = DType::kU8;
  std::vector<std::uint64_t> shape;  // as safetensors would state it: codes count 32-bit words
  std::string quant = {};            // ggml's name of the type, of blocks: "IQ3_XXS"
};

// Gate, up, down; of each the weight and, where its format has them, scales and biases.
std::vector<LayoutComponent> layout_components(const ExpertLayout& layout);

}  // namespace moepack
