// The routed experts of a GGUF file: stacked tensors, blk.N.ffn_{gate,up,down}_exps.weight
// [experts, outputs, inputs], or gate and up in one ffn_gate_up_exps with the rows of gate first;
// some models add .bias [experts, outputs] and .scale [experts]. Source: llama.cpp's tensor names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/gguf/gguf_model.h"

namespace moepack {

// One component of one projection in one layer. Expert e is bytes [begin + e * stride, … +
// expert_size) of the tensor.
struct GgufExpertComponent {
  std::string name;  // "gate_proj.weight"
  const GgufTensor* tensor = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t stride = 0;
  std::uint64_t expert_size = 0;
  std::vector<std::uint64_t> shape;  // logical, over all experts: [experts, …]
};

struct GgufExpertLayer {
  std::uint32_t layer = 0;
  std::uint64_t num_experts = 0;
  std::vector<GgufExpertComponent> components;  // gate, up, down; of each weight, bias, scale
};

// Layers with experts in ascending order; others (dense ones) are not in the list. kCorrupt, naming
// the tensor: a projection that is missing, a shape that is no stack of matrices, numbers of
// experts that differ from each other or from the key ARCHITECTURE.expert_count. The result points
// into `model`.
Result<std::vector<GgufExpertLayer>> find_gguf_experts(const GgufModel& model);

}  // namespace moepack
