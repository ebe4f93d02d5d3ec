// Every routed expert of a checkpoint: where its three matrices lie, whatever the layout on disk.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convert/source/source_matrix.h"
#include "convert/source/source_naming.h"
#include "convert/source/tensor_names.h"
#include "formats/weights/expert_layout.h"

namespace moepack {

struct ExpertTensor {
  TensorName name;  // role kExpert
  SourceTensor tensor;
};

class ExpertSource {
 public:
  // Finds all experts x projections x layers among `tensors`. A tensor that is missing, one that
  // stands twice (stacked and single), a shape or format that contradicts the configuration, or a
  // layer or expert beyond it is refused, naming the tensor.
  static Result<ExpertSource> build(const ModelConfig& config, const DeclaredFormats& declared,
                                    std::span<const ExpertTensor> tensors,
                                    const SourceNaming& naming);

  const SourceMatrix& of(std::uint32_t layer, std::uint32_t expert, Projection projection) const {
    return matrices_[(std::size_t{layer} * num_experts_ + expert) * kProjections +
                     static_cast<std::size_t>(projection)];
  }
  // False when a shard of the expert is only a saved header.
  bool has_data(std::uint32_t layer, std::uint32_t expert) const;
  // Bytes of one expert in the source.
  std::uint64_t bytes(std::uint32_t layer, std::uint32_t expert) const;

 private:
  std::uint32_t num_experts_ = 0;
  std::vector<SourceMatrix> matrices_;  // [layers][experts][projections]
};

}  // namespace moepack
