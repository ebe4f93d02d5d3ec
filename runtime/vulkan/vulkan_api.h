// The Vulkan loader, opened at run time: a machine without it runs everything else. Functions are
// members, so that nothing links against the library and nothing is global.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan.h>

#include <memory>

#include "formats/base/status.h"

namespace moepack {

// Functions that need no instance, of an instance, and of a device, by what they are asked from.
#define MOE_VULKAN_GLOBAL_FUNCTIONS(F) \
  F(vkCreateInstance)                  \
  F(vkEnumerateInstanceVersion)        \
  F(vkEnumerateInstanceLayerProperties)

#define MOE_VULKAN_INSTANCE_FUNCTIONS(F)      \
  F(vkDestroyInstance)                        \
  F(vkEnumeratePhysicalDevices)               \
  F(vkGetPhysicalDeviceProperties2)           \
  F(vkGetPhysicalDeviceFeatures2)             \
  F(vkGetPhysicalDeviceMemoryProperties2)     \
  F(vkGetPhysicalDeviceQueueFamilyProperties) \
  F(vkEnumerateDeviceExtensionProperties)     \
  F(vkCreateDevice)                           \
  F(vkGetDeviceProcAddr)

#define MOE_VULKAN_DEVICE_FUNCTIONS(F) \
  F(vkDestroyDevice)                   \
  F(vkGetDeviceQueue)                  \
  F(vkAllocateMemory)                  \
  F(vkFreeMemory)                      \
  F(vkMapMemory)                       \
  F(vkCreateBuffer)                    \
  F(vkDestroyBuffer)                   \
  F(vkGetBufferMemoryRequirements)     \
  F(vkBindBufferMemory)                \
  F(vkGetBufferDeviceAddress)          \
  F(vkCreateShaderModule)              \
  F(vkDestroyShaderModule)             \
  F(vkCreatePipelineLayout)            \
  F(vkDestroyPipelineLayout)           \
  F(vkCreatePipelineCache)             \
  F(vkDestroyPipelineCache)            \
  F(vkGetPipelineCacheData)            \
  F(vkCreateComputePipelines)          \
  F(vkDestroyPipeline)                 \
  F(vkCreateCommandPool)               \
  F(vkDestroyCommandPool)              \
  F(vkAllocateCommandBuffers)          \
  F(vkFreeCommandBuffers)              \
  F(vkBeginCommandBuffer)              \
  F(vkEndCommandBuffer)                \
  F(vkCmdBindPipeline)                 \
  F(vkCmdPushConstants)                \
  F(vkCmdDispatch)                     \
  F(vkCmdDispatchIndirect)             \
  F(vkCmdPipelineBarrier)              \
  F(vkCmdCopyBuffer)                   \
  F(vkCmdFillBuffer)                   \
  F(vkCmdResetQueryPool)               \
  F(vkCmdWriteTimestamp)               \
  F(vkCreateQueryPool)                 \
  F(vkDestroyQueryPool)                \
  F(vkGetQueryPoolResults)             \
  F(vkCreateSemaphore)                 \
  F(vkDestroySemaphore)                \
  F(vkWaitSemaphores)                  \
  F(vkGetSemaphoreCounterValue)        \
  F(vkQueueSubmit)                     \
  F(vkDeviceWaitIdle)

// Unmovable; lives as long as everything that was made through it. Its functions follow Vulkan's
// own thread rules.
class VulkanApi {
 public:
  // kUnsupported where the machine has no loader, or one older than Vulkan 1.2.
  static Result<std::unique_ptr<VulkanApi>> open();
  ~VulkanApi();
  VulkanApi(const VulkanApi&) = delete;
  VulkanApi& operator=(const VulkanApi&) = delete;

  // After vkCreateInstance and vkCreateDevice gave them.
  Status load_instance(VkInstance instance);
  Status load_device(VkDevice device);

#define MOE_MEMBER(name) PFN_##name name = nullptr;
  MOE_VULKAN_GLOBAL_FUNCTIONS(MOE_MEMBER)
  MOE_VULKAN_INSTANCE_FUNCTIONS(MOE_MEMBER)
  MOE_VULKAN_DEVICE_FUNCTIONS(MOE_MEMBER)
#undef MOE_MEMBER
  // Only with the extensions for debugging and for statistics of kernels; null else.
  // NOLINTBEGIN(readability-identifier-naming): Vulkan's names
  PFN_vkCreateDebugUtilsMessengerEXT vkCreateDebugUtilsMessengerEXT = nullptr;
  PFN_vkDestroyDebugUtilsMessengerEXT vkDestroyDebugUtilsMessengerEXT = nullptr;
  PFN_vkGetPipelineExecutableStatisticsKHR vkGetPipelineExecutableStatisticsKHR = nullptr;
  // NOLINTEND(readability-identifier-naming)

 private:
  VulkanApi() = default;

  void* library_ = nullptr;
  PFN_vkGetInstanceProcAddr get_instance_address_ = nullptr;
};

// "VK_ERROR_DEVICE_LOST", … for messages; a number for what is not known.
std::string vulkan_result_name(VkResult result);
// kIo: `what` was refused; for lost devices and short memory what to do about it.
Status vulkan_error(const char* what, VkResult result);

}  // namespace moepack
