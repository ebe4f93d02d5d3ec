#include "runtime/model/kernel_support.h"

#include <filesystem>
#include <string>

namespace moepack {
namespace {

Status check_format(const Kernels& kernels, const WeightFormat& format,
                    const std::filesystem::path& file, const std::string& tensor) {
  if (kernels.supports(format)) return Status::ok();
  return unsupported({.file = file.string(), .tensor = tensor},
                     "the kernels \"" + std::string(kernels.name) +
                         "\" do not compute the format " + to_string(format),
                     "take another backend or CPU level, or convert to a format that they know");
}

}  // namespace

Status check_kernel_support(const Kernels& kernels, const ModelDir& model) {
  for (const ResidentTensor& tensor : model.residents.tensors) {
    MOE_RETURN_IF_ERROR(check_format(kernels, tensor.format, model.path, tensor.name));
  }
  for (const ResidentOverlay& overlay : model.overlays) {
    for (const OverlayTensor& tensor : overlay.tensors) {
      MOE_RETURN_IF_ERROR(check_format(kernels, tensor.tensor.format,
                                       model.path / overlay.data_name(), tensor.tensor.name));
    }
  }
  for (const ExpertLayout& layout : model.pack.layouts) {
    for (const ProjectionLayout& projection : layout.projections) {
      MOE_RETURN_IF_ERROR(check_format(kernels, projection.format, model.pack_path, "experts"));
    }
  }
  return Status::ok();
}

}  // namespace moepack
