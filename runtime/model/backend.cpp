#include "runtime/model/backend.h"

namespace moepack {

Result<Backend> parse_backend(std::string_view name) {
  if (name == "auto" || name == "cpu") return Backend::kCpu;
  if (name == "reference") return Backend::kReference;
  return invalid_argument("unknown backend " + printable(name),
                          "known are auto, reference and cpu");
}

Result<const Kernels*> backend_kernels(Backend backend, CpuLevel level) {
  if (backend == Backend::kReference) return &reference_kernels();
  return cpu_kernels(level);
}

}  // namespace moepack
