#include "runtime/model/kernel_support.h"

#include <filesystem>
#include <string>

namespace moepack {
namespace {

// Calls visit(format, file, tensor) for every matrix, until it gives an error.
template <typename Visit>
Status visit_formats(const ModelDir& model, const Visit& visit) {
  for (const ResidentTensor& tensor : model.residents.tensors) {
    MOE_RETURN_IF_ERROR(visit(tensor.format, model.path, tensor.name));
  }
  for (const ResidentOverlay& overlay : model.overlays) {
    for (const OverlayTensor& tensor : overlay.tensors) {
      MOE_RETURN_IF_ERROR(
          visit(tensor.tensor.format, model.path / overlay.data_name(), tensor.tensor.name));
    }
  }
  for (const ExpertLayout& layout : model.pack.layouts) {
    for (const ProjectionLayout& projection : layout.projections) {
      MOE_RETURN_IF_ERROR(visit(projection.format, model.pack_path, std::string("experts")));
    }
  }
  return Status::ok();
}

}  // namespace

Status check_kernel_support(const Kernels& kernels, const ModelDir& model) {
  return check_format_support(kernels.name, kernels.supports, model);
}

Status check_format_support(std::string_view kernels,
                            const std::function<bool(const WeightFormat&)>& knows,
                            const ModelDir& model) {
  return visit_formats(model, [&](const WeightFormat& format, const std::filesystem::path& file,
                                  const std::string& tensor) {
    if (knows(format)) return Status::ok();
    return unsupported({.file = file.string(), .tensor = tensor},
                       "the kernels \"" + std::string(kernels) + "\" do not compute the format " +
                           to_string(format),
                       "take another backend or CPU level, or convert to a format that they know");
  });
}

bool is_batch_invariant(const Kernels& kernels, ActivationType activations, const ModelDir& model) {
  if (kernels.matmul == reference_kernels().matmul) return true;
  bool holds = true;
  (void)visit_formats(model, [&](const WeightFormat& format, const auto&, const auto&) {
    const bool in_bytes = activations != ActivationType::kFloat32 && kernels.codes.supports(format);
    holds = holds && (in_bytes || qformat_info(format.id).kind == QKind::kPlain);
    return Status::ok();
  });
  return holds;
}

}  // namespace moepack
