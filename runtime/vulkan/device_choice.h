// Which devices a machine has, what each of them lacks, and which is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/vulkan/vulkan_api.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

struct PhysicalDevice {
  VkPhysicalDevice handle = VK_NULL_HANDLE;
  VulkanDeviceInfo info;
  std::uint32_t queue_family = 0;  // one that computes
  bool has_memory_budget = false;  // VK_EXT_memory_budget
  bool has_code_sizes = false;     // VK_KHR_pipeline_executable_properties
};

// In the loader's order. kIo when it cannot list them.
Result<std::vector<PhysicalDevice>> physical_devices(const VulkanApi& api, VkInstance instance);

// The device of that index, else the first usable of the best type: discrete, integrated, virtual,
// other; a processor that plays a GPU is taken only where nothing else is. kUnsupported when there
// is none, or what the named one lacks; kInvalidArgument for an index beyond the list.
Result<PhysicalDevice> best_device(std::span<const PhysicalDevice> devices,
                                   std::optional<std::uint32_t> index);

// The chain of features that a device is asked for, or asked to be opened with. Unmovable: its
// parts point to each other.
struct DeviceFeatures {
  VkPhysicalDeviceFeatures2 core = {};
  VkPhysicalDeviceVulkan11Features v11 = {};
  VkPhysicalDeviceVulkan12Features v12 = {};
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot = {};
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR code = {};
  VkPhysicalDeviceCooperativeMatrixFeaturesNV matrix = {};

  DeviceFeatures();
  DeviceFeatures(const DeviceFeatures&) = delete;
  DeviceFeatures& operator=(const DeviceFeatures&) = delete;
  // Which of the optional parts the device knows and is asked about.
  void keep(bool integer_dot, bool code_sizes, bool cooperative_matrix);
  // Sets what kernels need, and what the device has of the rest.
  void enable(const VulkanDeviceInfo& info, bool has_code_sizes);
  // What kernels need and a device that was asked does not have; empty: nothing.
  std::string missing() const;
};

// Extensions to open a device with.
std::vector<const char*> device_extensions(const VulkanDeviceInfo& info, bool has_memory_budget,
                                           bool has_code_sizes);

}  // namespace moepack
