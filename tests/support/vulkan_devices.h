// The devices that tests of several GPUs take.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/vulkan/vulkan_device.h"

namespace moepack::test {

// `count` devices of the name of the first: each there is, in turn; one alone is opened as often.
inline std::vector<std::uint32_t> alike_devices(std::size_t count) {
  std::vector<std::uint32_t> alike;
  const auto devices = list_vulkan_devices();
  if (!devices.is_ok()) return {};
  for (const VulkanDeviceInfo& device : devices.value()) {
    if (device.name == devices.value().front().name) alike.push_back(device.index);
  }
  std::vector<std::uint32_t> taken;
  for (std::size_t i = 0; i < count; ++i) taken.push_back(alike[i % alike.size()]);
  return taken;
}

}  // namespace moepack::test
