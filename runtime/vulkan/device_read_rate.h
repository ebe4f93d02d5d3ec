// The rate at which a kernel reads a device's memory: the yardstick of kernels that read weights.
#pragma once

#include "formats/base/status.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

// Bytes a second, the best of some readings of up to 2 GiB (less where less is free) that no cache
// holds. Takes that memory for the time being.
Result<double> device_read_rate(VulkanDevice& device);

}  // namespace moepack
