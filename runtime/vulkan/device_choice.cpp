#include "runtime/vulkan/device_choice.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

namespace moepack {
namespace {

// What kernels count on.
constexpr std::uint32_t kLeastSubgroup = 8;
constexpr std::uint32_t kGroupThreads = 1024;
constexpr std::uint32_t kSharedBytes = 32768;

VulkanDeviceType type_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return VulkanDeviceType::kDiscrete;
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return VulkanDeviceType::kIntegrated;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return VulkanDeviceType::kVirtual;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return VulkanDeviceType::kCpu;
    default:
      return VulkanDeviceType::kOther;
  }
}

// Smaller is better.
int rank_of(VulkanDeviceType type) {
  switch (type) {
    case VulkanDeviceType::kDiscrete:
      return 0;
    case VulkanDeviceType::kIntegrated:
      return 1;
    case VulkanDeviceType::kVirtual:
      return 2;
    case VulkanDeviceType::kOther:
      return 3;
    case VulkanDeviceType::kCpu:
      return 4;
  }
  return 5;
}

std::vector<VkExtensionProperties> extensions_of(const VulkanApi& api, VkPhysicalDevice device) {
  std::uint32_t count = 0;
  (void)api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  (void)api.vkEnumerateDeviceExtensionProperties(device, nullptr, &count, extensions.data());
  extensions.resize(count);
  return extensions;
}

bool has_extension(std::span<const VkExtensionProperties> extensions, const char* name) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const VkExtensionProperties& e) {
    return std::strcmp(e.extensionName, name) == 0;
  });
}

std::optional<std::uint32_t> compute_family(const VulkanApi& api, VkPhysicalDevice device) {
  std::uint32_t count = 0;
  api.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  api.vkGetPhysicalDeviceQueueFamilyProperties(device, &count, families.data());
  for (std::uint32_t i = 0; i < count; ++i) {
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) != 0) return i;
  }
  return std::nullopt;
}

void describe_memory(const VulkanApi& api, VkPhysicalDevice device, VulkanDeviceInfo& info) {
  VkPhysicalDeviceMemoryProperties2 memory{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
      .pNext = nullptr,
      .memoryProperties = {}};
  api.vkGetPhysicalDeviceMemoryProperties2(device, &memory);
  const VkPhysicalDeviceMemoryProperties& p = memory.memoryProperties;
  bool all_local = true;
  for (std::uint32_t i = 0; i < p.memoryHeapCount; ++i) {
    const bool is_local = (p.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
    if (is_local) info.memory_bytes += p.memoryHeaps[i].size;
    all_local = all_local && is_local;
  }
  info.is_unified = all_local || info.type == VulkanDeviceType::kIntegrated;
}

// Of a device with VK_EXT_subgroup_size_control.
std::uint32_t least_subgroup(const VulkanApi& api, VkPhysicalDevice device) {
  VkPhysicalDeviceSubgroupSizeControlProperties sizes{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES,
      .pNext = nullptr,
      .minSubgroupSize = 0,
      .maxSubgroupSize = 0,
      .maxComputeWorkgroupSubgroups = 0,
      .requiredSubgroupSizeStages = 0};
  VkPhysicalDeviceProperties2 properties{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &sizes, .properties = {}};
  api.vkGetPhysicalDeviceProperties2(device, &properties);
  return std::max(sizes.minSubgroupSize, kLeastSubgroup);
}

void describe_limits(const VulkanApi& api, VkPhysicalDevice device, VulkanDeviceInfo& info) {
  VkPhysicalDeviceDriverProperties driver{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES,
      .pNext = nullptr,
      .driverID = {},
      .driverName = {},
      .driverInfo = {},
      .conformanceVersion = {}};
  VkPhysicalDeviceSubgroupProperties subgroup{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES,
      .pNext = &driver,
      .subgroupSize = 0,
      .supportedStages = 0,
      .supportedOperations = 0,
      .quadOperationsInAllStages = 0};
  VkPhysicalDeviceMaintenance3Properties allocation{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES,
      .pNext = &subgroup,
      .maxPerSetDescriptors = 0,
      .maxMemoryAllocationSize = 0};
  VkPhysicalDeviceProperties2 properties{.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                         .pNext = &allocation,
                                         .properties = {}};
  api.vkGetPhysicalDeviceProperties2(device, &properties);
  const VkPhysicalDeviceProperties& p = properties.properties;
  info.name = printable(p.deviceName);
  info.type = type_of(p.deviceType);
  info.api_version = p.apiVersion;
  info.driver = printable(driver.driverName) + " " + printable(driver.driverInfo);
  info.subgroup_size = subgroup.subgroupSize;
  info.starts_in_order = driver.driverID == VK_DRIVER_ID_NVIDIA_PROPRIETARY;
  info.shared_bytes = p.limits.maxComputeSharedMemorySize;
  info.group_threads = p.limits.maxComputeWorkGroupInvocations;
  constexpr VkSubgroupFeatureFlags kOperations =
      VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_VOTE_BIT |
      VK_SUBGROUP_FEATURE_ARITHMETIC_BIT | VK_SUBGROUP_FEATURE_BALLOT_BIT |
      VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
  info.has_subgroup_operations = (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
                                 (subgroup.supportedOperations & kOperations) == kOperations;
  info.most_allocation = allocation.maxMemoryAllocationSize;
  info.timestamp_ns =
      p.limits.timestampComputeAndGraphics == VK_TRUE ? p.limits.timestampPeriod : 0.0F;
}

std::string what_lacks(const VulkanApi& api, const PhysicalDevice& device,
                       const DeviceFeatures& features) {
  if (device.info.api_version < VK_API_VERSION_1_2) return "Vulkan 1.2";
  if (!compute_family(api, device.handle).has_value()) return "a queue that computes";
  const VulkanDeviceInfo& info = device.info;
  if (info.subgroup_size < kLeastSubgroup || !info.has_subgroup_operations) {
    return "subgroups of eight with sums, votes and shuffles";
  }
  if (info.group_threads < kGroupThreads) return "work groups of 1024 threads";
  if (info.shared_bytes < kSharedBytes) return "32 KiB of shared memory";
  return features.missing();
}

PhysicalDevice describe(const VulkanApi& api, VkPhysicalDevice handle, std::uint32_t index) {
  PhysicalDevice device{.handle = handle, .info = {.index = index}};
  describe_limits(api, handle, device.info);
  describe_memory(api, handle, device.info);
  const std::vector<VkExtensionProperties> extensions = extensions_of(api, handle);
  device.info.least_subgroup =
      has_extension(extensions, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)
          ? least_subgroup(api, handle)
          : kLeastSubgroup;
  device.has_memory_budget = has_extension(extensions, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  device.queue_family = compute_family(api, handle).value_or(0);
  DeviceFeatures features;
  device.has_code_sizes =
      has_extension(extensions, VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  if (device.info.api_version >= VK_API_VERSION_1_2) {
    features.keep(has_extension(extensions, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME),
                  device.has_code_sizes,
                  has_extension(extensions, VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME));
    api.vkGetPhysicalDeviceFeatures2(handle, &features.core);
  }
  device.info.has_cooperative_matrix = features.matrix.cooperativeMatrix == VK_TRUE &&
                                       features.v12.shaderFloat16 == VK_TRUE &&
                                       features.v12.vulkanMemoryModel == VK_TRUE;
  device.info.has_integer_dot = features.dot.shaderIntegerDotProduct == VK_TRUE;
  device.has_code_sizes = features.code.pipelineExecutableInfo == VK_TRUE;
  device.info.lacks = what_lacks(api, device, features);
  return device;
}

}  // namespace

DeviceFeatures::DeviceFeatures() {
  core.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  core.pNext = &v11;
  v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  v11.pNext = &v12;
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  dot.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  code.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR;
  matrix.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_NV;
}

void DeviceFeatures::keep(bool integer_dot, bool code_sizes, bool cooperative_matrix) {
  const auto chain = [this](auto& part) {
    part.pNext = v12.pNext;
    v12.pNext = &part;
  };
  v12.pNext = nullptr;
  if (integer_dot) chain(dot);
  if (code_sizes) chain(code);
  if (cooperative_matrix) chain(matrix);
}

void DeviceFeatures::enable(const VulkanDeviceInfo& info, bool has_code_sizes) {
  core.features.shaderInt16 = VK_TRUE;
  core.features.shaderInt64 = VK_TRUE;
  v11.storageBuffer16BitAccess = VK_TRUE;
  v12.storageBuffer8BitAccess = VK_TRUE;
  v12.scalarBlockLayout = VK_TRUE;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.timelineSemaphore = VK_TRUE;
  v12.shaderInt8 = VK_TRUE;
  keep(info.has_integer_dot, has_code_sizes, info.has_cooperative_matrix);
  dot.shaderIntegerDotProduct = VK_TRUE;
  code.pipelineExecutableInfo = VK_TRUE;
  if (!info.has_cooperative_matrix) return;
  v12.shaderFloat16 = VK_TRUE;
  v12.vulkanMemoryModel = VK_TRUE;
  matrix.cooperativeMatrix = VK_TRUE;
}

std::string DeviceFeatures::missing() const {
  const std::array<std::pair<VkBool32, const char*>, 8> needed{{
      {core.features.shaderInt16, "shaderInt16"},
      {core.features.shaderInt64, "shaderInt64"},
      {v11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
      {v12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
      {v12.scalarBlockLayout, "scalarBlockLayout"},
      {v12.bufferDeviceAddress, "bufferDeviceAddress"},
      {v12.timelineSemaphore, "timelineSemaphore"},
      {v12.shaderInt8, "shaderInt8"},
  }};
  std::string names;
  for (const auto& [has, name] : needed) {
    if (has == VK_TRUE) continue;
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

std::vector<const char*> device_extensions(const VulkanDeviceInfo& info, bool has_memory_budget,
                                           bool has_code_sizes) {
  std::vector<const char*> names;
  if (has_memory_budget) names.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (info.has_integer_dot) names.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
  if (has_code_sizes) names.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  if (info.has_cooperative_matrix) names.push_back(VK_NV_COOPERATIVE_MATRIX_EXTENSION_NAME);
  return names;
}

Result<std::vector<PhysicalDevice>> physical_devices(const VulkanApi& api, VkInstance instance) {
  std::uint32_t count = 0;
  VkResult result = api.vkEnumeratePhysicalDevices(instance, &count, nullptr);
  std::vector<VkPhysicalDevice> handles(count);
  if (result == VK_SUCCESS) {
    result = api.vkEnumeratePhysicalDevices(instance, &count, handles.data());
  }
  if (result != VK_SUCCESS && result != VK_INCOMPLETE) {
    return vulkan_error("listing the devices", result);
  }
  std::vector<PhysicalDevice> devices;
  for (std::uint32_t i = 0; i < count; ++i) devices.push_back(describe(api, handles[i], i));
  return devices;
}

Result<PhysicalDevice> best_device(std::span<const PhysicalDevice> devices,
                                   std::optional<std::uint32_t> index) {
  if (index.has_value()) {
    if (*index >= devices.size()) {
      return invalid_argument("no Vulkan device " + std::to_string(*index) + "; there are " +
                                  std::to_string(devices.size()),
                              "--list-devices shows them");
    }
    const PhysicalDevice& device = devices[*index];
    if (device.info.lacks.empty()) return device;
    return unsupported(Where{}, device.info.name + " lacks " + device.info.lacks,
                       "use another --device, or --backend cpu");
  }
  const PhysicalDevice* best = nullptr;
  for (const PhysicalDevice& device : devices) {
    if (!device.info.lacks.empty()) continue;
    if (best == nullptr || rank_of(device.info.type) < rank_of(best->info.type)) best = &device;
  }
  if (best != nullptr) return *best;
  std::string what = "no Vulkan device that can be used";
  for (const PhysicalDevice& device : devices) {
    what += "; " + device.info.name + " lacks " + device.info.lacks;
  }
  return unsupported(Where{}, what, "install the driver of the GPU, or use --backend cpu");
}

Result<std::vector<VulkanDeviceInfo>> list_vulkan_devices() {
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<VulkanApi> api, VulkanApi::open());
  const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                      .pNext = nullptr,
                                      .pApplicationName = "moepack",
                                      .applicationVersion = 1,
                                      .pEngineName = "moepack",
                                      .engineVersion = 1,
                                      .apiVersion = VK_API_VERSION_1_2};
  const VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                  .pNext = nullptr,
                                  .flags = 0,
                                  .pApplicationInfo = &application,
                                  .enabledLayerCount = 0,
                                  .ppEnabledLayerNames = nullptr,
                                  .enabledExtensionCount = 0,
                                  .ppEnabledExtensionNames = nullptr};
  VkInstance instance = VK_NULL_HANDLE;
  const VkResult result = api->vkCreateInstance(&info, nullptr, &instance);
  if (result != VK_SUCCESS) {
    return unsupported(Where{}, "Vulkan does not start: " + vulkan_result_name(result),
                       "install the driver of the GPU");
  }
  MOE_RETURN_IF_ERROR(api->load_instance(instance));
  Result<std::vector<PhysicalDevice>> devices = physical_devices(*api, instance);
  api->vkDestroyInstance(instance, nullptr);
  if (!devices.is_ok()) return devices.status();
  std::vector<VulkanDeviceInfo> infos;
  for (const PhysicalDevice& device : devices.value()) infos.push_back(device.info);
  return infos;
}

std::string_view vulkan_device_type_name(VulkanDeviceType type) {
  switch (type) {
    case VulkanDeviceType::kDiscrete:
      return "discrete";
    case VulkanDeviceType::kIntegrated:
      return "integrated";
    case VulkanDeviceType::kVirtual:
      return "virtual";
    case VulkanDeviceType::kCpu:
      return "cpu";
    case VulkanDeviceType::kOther:
      return "other";
  }
  return "other";
}

}  // namespace moepack
