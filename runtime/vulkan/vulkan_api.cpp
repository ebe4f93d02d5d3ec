#include "runtime/vulkan/vulkan_api.h"

#include <dlfcn.h>

#include <array>
#include <string>

namespace moepack {
namespace {

// Names of the loader on Linux and macOS.
constexpr std::array<const char*, 3> kLibraries{"libvulkan.so.1", "libvulkan.1.dylib",
                                                "libMoltenVK.dylib"};

template <typename Function>
bool load(PFN_vkGetInstanceProcAddr get, VkInstance instance, const char* name,
          Function& function) {
  function = reinterpret_cast<Function>(get(instance, name));
  return function != nullptr;
}

Status lacks(const char* name) {
  return unsupported(Where{}, std::string("the Vulkan driver lacks ") + name,
                     "it is too old; use --backend cpu");
}

}  // namespace

Result<std::unique_ptr<VulkanApi>> VulkanApi::open() {
  std::unique_ptr<VulkanApi> api(new VulkanApi());
  for (const char* library : kLibraries) {
    api->library_ = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (api->library_ != nullptr) break;
  }
  if (api->library_ == nullptr) {
    return unsupported(Where{}, "no Vulkan loader (libvulkan.so.1) on this machine",
                       "install it and the driver of the GPU, or use --backend cpu");
  }
  api->get_instance_address_ =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(api->library_, "vkGetInstanceProcAddr"));
  if (api->get_instance_address_ == nullptr) return lacks("vkGetInstanceProcAddr");
#define MOE_LOAD(name) \
  if (!load(api->get_instance_address_, nullptr, #name, api->name)) return lacks(#name);
  MOE_VULKAN_GLOBAL_FUNCTIONS(MOE_LOAD)
#undef MOE_LOAD
  return api;
}

VulkanApi::~VulkanApi() {
  if (library_ != nullptr) dlclose(library_);
}

Status VulkanApi::load_instance(VkInstance instance) {
#define MOE_LOAD(name) \
  if (!load(get_instance_address_, instance, #name, this->name)) return lacks(#name);
  MOE_VULKAN_INSTANCE_FUNCTIONS(MOE_LOAD)
#undef MOE_LOAD
  load(get_instance_address_, instance, "vkCreateDebugUtilsMessengerEXT",
       vkCreateDebugUtilsMessengerEXT);
  load(get_instance_address_, instance, "vkDestroyDebugUtilsMessengerEXT",
       vkDestroyDebugUtilsMessengerEXT);
  return Status::ok();
}

Status VulkanApi::load_device(VkDevice device) {
#define MOE_LOAD(name)                                                           \
  this->name = reinterpret_cast<PFN_##name>(vkGetDeviceProcAddr(device, #name)); \
  if (this->name == nullptr) return lacks(#name);
  MOE_VULKAN_DEVICE_FUNCTIONS(MOE_LOAD)
#undef MOE_LOAD
  vkGetPipelineExecutableStatisticsKHR = reinterpret_cast<PFN_vkGetPipelineExecutableStatisticsKHR>(
      vkGetDeviceProcAddr(device, "vkGetPipelineExecutableStatisticsKHR"));
  return Status::ok();
}

std::string vulkan_result_name(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "VK_ERROR_OUT_OF_HOST_MEMORY";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "VK_ERROR_OUT_OF_DEVICE_MEMORY";
    case VK_ERROR_INITIALIZATION_FAILED:
      return "VK_ERROR_INITIALIZATION_FAILED";
    case VK_ERROR_DEVICE_LOST:
      return "VK_ERROR_DEVICE_LOST";
    case VK_ERROR_MEMORY_MAP_FAILED:
      return "VK_ERROR_MEMORY_MAP_FAILED";
    case VK_ERROR_LAYER_NOT_PRESENT:
      return "VK_ERROR_LAYER_NOT_PRESENT";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
      return "VK_ERROR_EXTENSION_NOT_PRESENT";
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return "VK_ERROR_FEATURE_NOT_PRESENT";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return "VK_ERROR_INCOMPATIBLE_DRIVER";
    case VK_ERROR_TOO_MANY_OBJECTS:
      return "VK_ERROR_TOO_MANY_OBJECTS";
    case VK_ERROR_UNKNOWN:
      return "VK_ERROR_UNKNOWN";
    case VK_TIMEOUT:
      return "VK_TIMEOUT";
    default:
      return "VkResult " + std::to_string(static_cast<int>(result));
  }
}

Status vulkan_error(const char* what, VkResult result) {
  std::string_view remedy;
  if (result == VK_ERROR_DEVICE_LOST) {
    remedy = "the GPU was reset or taken away: start again, or use --backend cpu";
  } else if (result == VK_ERROR_OUT_OF_DEVICE_MEMORY) {
    remedy = "lower --vram-mb or -c, or use --backend cpu";
  }
  return make_error(StatusCode::kIo, Where{},
                    std::string("Vulkan: ") + what + ": " + vulkan_result_name(result), remedy);
}

}  // namespace moepack
