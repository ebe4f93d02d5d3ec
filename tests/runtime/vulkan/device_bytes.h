// Components of a matrix as they lie in device memory.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/vulkan/device_rows.h"

namespace moepack::test {

// Empty where the format lacks the component.
inline std::vector<std::byte> device_bytes(const QMatrixView& w, Component component) {
  const std::uint64_t size = matrix_bytes(w.format, w.rows, w.cols).value()[component];
  std::vector<std::byte> bytes(size);
  if (size > 0) {
    to_device_rows(w.format, component, w.rows, size / w.rows, w.data[component], bytes.data());
  }
  return bytes;
}

}  // namespace moepack::test
