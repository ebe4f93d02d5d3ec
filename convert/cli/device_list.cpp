#include "convert/cli/device_list.h"

#include <iostream>

#include "convert/cli/command.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack::cli {

int list_devices() {
  const Result<std::vector<VulkanDeviceInfo>> devices = list_vulkan_devices();
  if (!devices.is_ok()) return fail(devices.status());
  for (const VulkanDeviceInfo& device : devices.value()) {
    std::cout << device.index << ": " << device.name << ", " << vulkan_device_type_name(device.type)
              << ", " << (device.memory_bytes >> 20) << " MiB"
              << (device.is_unified ? " shared with the processor" : "") << ", " << device.driver;
    if (!device.lacks.empty()) std::cout << "; cannot be used: lacks " << device.lacks;
    std::cout << "\n";
  }
  if (devices.value().empty()) std::cout << "no devices\n";
  return kExitOk;
}

}  // namespace moepack::cli
