// Which resident tensors a model has, in which format and where each will lie.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convert/job/options.h"
#include "convert/source/source_matrix.h"
#include "convert/source/source_naming.h"
#include "formats/pack/resident_manifest.h"

namespace moepack {

struct ResidentSource {
  TensorName name;  // role kResident
  SourceTensor tensor;
};

struct ResidentPlan {
  ResidentManifest manifest;          // tensors, conventions, data_size
  std::vector<SourceMatrix> sources;  // by tensor
  std::vector<std::string> kept;      // canonical names that the group size does not fit
};

// Every tensor that the architecture's table asks for must be there with the shape that the
// configuration gives; one of another layer type is refused. Errors name the tensor. `conventions`:
// those of the kind of source, nullopt where the shape of conv1d tells them.
Result<ResidentPlan> plan_residents(const Architecture& names, const ModelConfig& config,
                                    const DeclaredFormats& declared,
                                    std::span<const ResidentSource> tensors,
                                    const ConvertOptions& options, const SourceNaming& naming,
                                    const std::optional<ResidentConventions>& conventions);

}  // namespace moepack
