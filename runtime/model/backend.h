// Which implementation computes a forward pass, and with which kernels.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/base/status.h"
#include "runtime/model/kernels.h"

namespace moepack {

enum class Backend : std::uint8_t {
  kReference,  // scalar float32: the oracle
  kCpu,        // SIMD kernels chosen for this processor
  kVulkan,     // a GPU
  kAuto,       // a GPU where one is that the whole model fits, else kCpu
};

// "auto", "reference", "cpu" or "vulkan". kInvalidArgument otherwise. From any thread.
Result<Backend> parse_backend(std::string_view name);
// The kernel table of a backend of the processor, kAuto being kCpu here; kUnsupported when this
// machine cannot run it, and for kVulkan. `level` is of the cpu backend alone. The table lives as
// long as the program.
Result<const Kernels*> backend_kernels(Backend backend, CpuLevel level);

}  // namespace moepack
