// Which resident tensors a model has, in which format and where each will lie.
#pragma once

#include <string>
#include <vector>

#include "convert/options.h"
#include "convert/source_matrix.h"
#include "formats/resident_manifest.h"

namespace moepack {

struct ResidentSource {
  TensorName name;  // role kResident
  const TensorRef* tensor = nullptr;
};

struct ResidentPlan {
  ResidentManifest manifest;          // tensors, conventions, data_size
  std::vector<SourceMatrix> sources;  // by tensor
  std::vector<std::string> kept;      // canonical names that the group size does not fit
};

// Every tensor that the architecture's table asks for must be there with the shape that
// config.json gives; one of another layer type is refused. Errors name the tensor.
Result<ResidentPlan> plan_residents(const ArchitectureNames& names, const ModelConfig& config,
                                    const DeclaredFormats& declared,
                                    std::span<const ResidentSource> tensors,
                                    const ConvertOptions& options, const std::string& directory);

}  // namespace moepack
