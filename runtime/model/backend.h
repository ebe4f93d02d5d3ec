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
};

// "auto", "reference" or "cpu"; auto is cpu. kInvalidArgument otherwise. From any thread.
Result<Backend> parse_backend(std::string_view name);
// The kernel table of a backend; kUnsupported when this machine cannot run it. `level` is of the
// cpu backend alone. The table lives as long as the program.
Result<const Kernels*> backend_kernels(Backend backend, CpuLevel level);

}  // namespace moepack
