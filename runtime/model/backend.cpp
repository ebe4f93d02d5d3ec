#include "runtime/model/backend.h"

namespace moepack {

Result<Backend> parse_backend(std::string_view name) {
  if (name == "auto") return Backend::kAuto;
  if (name == "cpu") return Backend::kCpu;
  if (name == "reference") return Backend::kReference;
  if (name == "vulkan") return Backend::kVulkan;
  return invalid_argument("unknown backend " + printable(name),
                          "known are auto, reference, cpu and vulkan");
}

Result<const Kernels*> backend_kernels(Backend backend, CpuLevel level) {
  if (backend == Backend::kReference) return &reference_kernels();
  if (backend == Backend::kVulkan) {
    return unsupported(Where{}, "this command computes on the processor alone",
                       "leave --backend vulkan out");
  }
  return cpu_kernels(level);
}

}  // namespace moepack
