#include "runtime/vulkan/vulkan_device.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/device_choice.h"
#include "shaders/catalog.h"

namespace moepack {
namespace {

constexpr std::uint64_t kStagingBytes = std::uint64_t{32} << 20;
constexpr std::uint32_t kApiVersion = VK_API_VERSION_1_2;
constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";

VKAPI_ATTR VkBool32 VKAPI_CALL forward_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                               VkDebugUtilsMessageTypeFlagsEXT,
                                               const VkDebugUtilsMessengerCallbackDataEXT* data,
                                               void* user) {
  const auto& sink = *static_cast<const std::function<void(const std::string&)>*>(user);
  sink(printable(data->pMessage, 2000));
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info(
    const std::function<void(const std::string&)>& sink) {
  return {.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
          .pNext = nullptr,
          .flags = 0,
          .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                             VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
          .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
          .pfnUserCallback = forward_message,
          .pUserData = const_cast<std::function<void(const std::string&)>*>(&sink)};
}

}  // namespace

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  device_ = std::exchange(other.device_, nullptr);
  buffer_ = std::exchange(other.buffer_, VK_NULL_HANDLE);
  memory_ = std::exchange(other.memory_, VK_NULL_HANDLE);
  address_ = std::exchange(other.address_, 0);
  size_ = std::exchange(other.size_, 0);
  taken_ = std::exchange(other.taken_, 0);
  mapped_ = std::exchange(other.mapped_, nullptr);
  is_device_local_ = other.is_device_local_;
  return *this;
}

void DeviceBuffer::release() {
  if (device_ == nullptr) return;
  const VulkanApi& api = device_->api();
  if (buffer_ != VK_NULL_HANDLE) api.vkDestroyBuffer(device_->handle(), buffer_, nullptr);
  if (memory_ != VK_NULL_HANDLE) api.vkFreeMemory(device_->handle(), memory_, nullptr);
  device_->taken_ -= taken_;
  device_ = nullptr;
}

VulkanKernel& VulkanKernel::operator=(VulkanKernel&& other) noexcept {
  if (this == &other) return *this;
  release();
  device_ = std::exchange(other.device_, nullptr);
  pipeline_ = std::exchange(other.pipeline_, VK_NULL_HANDLE);
  name_ = std::move(other.name_);
  return *this;
}

void VulkanKernel::release() {
  if (device_ == nullptr) return;
  device_->api().vkDestroyPipeline(device_->handle(), pipeline_, nullptr);
  device_ = nullptr;
}

Result<std::unique_ptr<VulkanDevice>> VulkanDevice::open(const VulkanOptions& options) {
  std::unique_ptr<VulkanDevice> device(new VulkanDevice());
  MOE_ASSIGN_OR_RETURN(device->api_, VulkanApi::open());
  device->budget_ = options.memory_budget;
  device->force_staging_ = options.force_staging;
  device->validation_ = options.validation;
  MOE_RETURN_IF_ERROR(device->create_instance(options));
  MOE_RETURN_IF_ERROR(device->choose_device(options));
  MOE_RETURN_IF_ERROR(device->create_device());
  MOE_RETURN_IF_ERROR(device->create_objects());
  return device;
}

Status VulkanDevice::create_instance(const VulkanOptions& options) {
  const VkValidationFeatureEnableEXT check =
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  VkDebugUtilsMessengerCreateInfoEXT messages = messenger_info(validation_);
  const VkValidationFeaturesEXT features{.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
                                         .pNext = &messages,
                                         .enabledValidationFeatureCount = 1,
                                         .pEnabledValidationFeatures = &check,
                                         .disabledValidationFeatureCount = 0,
                                         .pDisabledValidationFeatures = nullptr};
  const VkApplicationInfo application{.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                      .pNext = nullptr,
                                      .pApplicationName = "moepack",
                                      .applicationVersion = 1,
                                      .pEngineName = "moepack",
                                      .engineVersion = 1,
                                      .apiVersion = kApiVersion};
  const char* extension = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
  const bool is_checked = options.validation != nullptr;
  const VkInstanceCreateInfo info{.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                  .pNext = is_checked ? &features : nullptr,
                                  .flags = 0,
                                  .pApplicationInfo = &application,
                                  .enabledLayerCount = is_checked ? 1U : 0U,
                                  .ppEnabledLayerNames = &kValidationLayer,
                                  .enabledExtensionCount = is_checked ? 1U : 0U,
                                  .ppEnabledExtensionNames = &extension};
  const VkResult result = api_->vkCreateInstance(&info, nullptr, &instance_);
  if (result == VK_ERROR_LAYER_NOT_PRESENT) {
    return unsupported(Where{}, "the Vulkan validation layers are not installed",
                       "install vulkan-validationlayers");
  }
  if (result != VK_SUCCESS) {
    return unsupported(Where{}, "Vulkan does not start: " + vulkan_result_name(result),
                       "install the driver of the GPU, or use --backend cpu");
  }
  MOE_RETURN_IF_ERROR(api_->load_instance(instance_));
  if (is_checked && api_->vkCreateDebugUtilsMessengerEXT != nullptr) {
    (void)api_->vkCreateDebugUtilsMessengerEXT(instance_, &messages, nullptr, &messenger_);
  }
  return Status::ok();
}

Status VulkanDevice::choose_device(const VulkanOptions& options) {
  MOE_ASSIGN_OR_RETURN(const std::vector<PhysicalDevice> devices,
                       physical_devices(*api_, instance_));
  MOE_ASSIGN_OR_RETURN(const PhysicalDevice chosen, best_device(devices, options.device));
  physical_ = chosen.handle;
  info_ = chosen.info;
  queue_family_ = chosen.queue_family;
  has_memory_budget_ = chosen.has_memory_budget;
  if (!options.wants_fixed_products) info_.has_integer_dot = false;
  takes_ordered_programs_ = options.ordering == StageOrdering::kCounters ||
                            (options.ordering == StageOrdering::kAuto && info_.starts_in_order);
  has_code_sizes_ = options.wants_code_sizes && chosen.has_code_sizes;
  if (options.most_allocation != 0) {
    info_.most_allocation = std::min(info_.most_allocation, options.most_allocation);
  }
  VkPhysicalDeviceMemoryProperties2 memory{
      .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
      .pNext = nullptr,
      .memoryProperties = {}};
  api_->vkGetPhysicalDeviceMemoryProperties2(physical_, &memory);
  memory_ = memory.memoryProperties;
  return Status::ok();
}

Status VulkanDevice::create_device() {
  const float priority = 1.0F;
  const VkDeviceQueueCreateInfo queue{.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                      .pNext = nullptr,
                                      .flags = 0,
                                      .queueFamilyIndex = queue_family_,
                                      .queueCount = 1,
                                      .pQueuePriorities = &priority};
  DeviceFeatures features;
  features.enable(info_, has_code_sizes_);
  const std::vector<const char*> extensions =
      device_extensions(info_, has_memory_budget_, has_code_sizes_);
  const VkDeviceCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
      .pNext = &features.core,
      .flags = 0,
      .queueCreateInfoCount = 1,
      .pQueueCreateInfos = &queue,
      .enabledLayerCount = 0,
      .ppEnabledLayerNames = nullptr,
      .enabledExtensionCount = static_cast<std::uint32_t>(extensions.size()),
      .ppEnabledExtensionNames = extensions.data(),
      .pEnabledFeatures = nullptr};
  const VkResult result = api_->vkCreateDevice(physical_, &info, nullptr, &device_);
  if (result != VK_SUCCESS) return vulkan_error("opening the device", result);
  MOE_RETURN_IF_ERROR(api_->load_device(device_));
  api_->vkGetDeviceQueue(device_, queue_family_, 0, &queue_);
  return Status::ok();
}

Status VulkanDevice::create_objects() {
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, kMostPushBytes};
  const VkPipelineLayoutCreateInfo layout{.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                          .pNext = nullptr,
                                          .flags = 0,
                                          .setLayoutCount = 0,
                                          .pSetLayouts = nullptr,
                                          .pushConstantRangeCount = 1,
                                          .pPushConstantRanges = &range};
  VkResult result = api_->vkCreatePipelineLayout(device_, &layout, nullptr, &layout_);
  if (result != VK_SUCCESS) return vulkan_error("the pipeline layout", result);
  const VkCommandPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                     .pNext = nullptr,
                                     .flags = 0,
                                     .queueFamilyIndex = queue_family_};
  result = api_->vkCreateCommandPool(device_, &pool, nullptr, &pool_);
  if (result != VK_SUCCESS) return vulkan_error("the command pool", result);
  const VkSemaphoreTypeCreateInfo type{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                       .pNext = nullptr,
                                       .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE,
                                       .initialValue = 0};
  const VkSemaphoreCreateInfo semaphore{
      .sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type, .flags = 0};
  result = api_->vkCreateSemaphore(device_, &semaphore, nullptr, &timeline_);
  if (result != VK_SUCCESS) return vulkan_error("the semaphore", result);
  MOE_RETURN_IF_ERROR(load_pipeline_cache({}));
  // Device memory that the host sees too: of the type that allocations for the device take.
  const auto device_type = memory_type(~0U, MemoryKind::kDevice);
  maps_device_memory_ = !force_staging_ && device_type.has_value() &&
                        (memory_flags(*device_type) & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0 &&
                        (memory_flags(*device_type) & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
  return Status::ok();
}

VulkanDevice::~VulkanDevice() {
  staging_ = DeviceBuffer();
  if (device_ != VK_NULL_HANDLE && api_->vkDestroyDevice != nullptr) {
    if (api_->vkDeviceWaitIdle != nullptr) (void)api_->vkDeviceWaitIdle(device_);
    if (timeline_ != VK_NULL_HANDLE) api_->vkDestroySemaphore(device_, timeline_, nullptr);
    if (pool_ != VK_NULL_HANDLE) api_->vkDestroyCommandPool(device_, pool_, nullptr);
    if (cache_ != VK_NULL_HANDLE) api_->vkDestroyPipelineCache(device_, cache_, nullptr);
    if (layout_ != VK_NULL_HANDLE) api_->vkDestroyPipelineLayout(device_, layout_, nullptr);
    api_->vkDestroyDevice(device_, nullptr);
  }
  if (messenger_ != VK_NULL_HANDLE) {
    api_->vkDestroyDebugUtilsMessengerEXT(instance_, messenger_, nullptr);
  }
  if (instance_ != VK_NULL_HANDLE && api_->vkDestroyInstance != nullptr) {
    api_->vkDestroyInstance(instance_, nullptr);
  }
}

std::uint64_t VulkanDevice::free_bytes() const {
  std::uint64_t bytes = info_.memory_bytes - std::min(info_.memory_bytes, taken_);
  if (has_memory_budget_) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT,
        .pNext = nullptr,
        .heapBudget = {},
        .heapUsage = {}};
    VkPhysicalDeviceMemoryProperties2 memory{
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = &budget,
        .memoryProperties = {}};
    api_->vkGetPhysicalDeviceMemoryProperties2(physical_, &memory);
    bytes = 0;
    for (std::uint32_t heap = 0; heap < memory_.memoryHeapCount; ++heap) {
      if ((memory_.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
      bytes += budget.heapBudget[heap] - std::min(budget.heapBudget[heap], budget.heapUsage[heap]);
    }
  }
  if (budget_ == 0) return bytes;
  return std::min(bytes, budget_ - std::min(budget_, taken_));
}

VkMemoryPropertyFlags VulkanDevice::memory_flags(std::uint32_t type) const {
  return memory_.memoryTypes[type].propertyFlags;
}

// The type with all flags that are needed and, before others, those that are wished for.
std::optional<std::uint32_t> VulkanDevice::memory_type(std::uint32_t allowed,
                                                       MemoryKind kind) const {
  constexpr VkMemoryPropertyFlags kHost =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  std::array<VkMemoryPropertyFlags, 2> wishes{};
  switch (kind) {
    case MemoryKind::kDevice:
      wishes = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
      break;
    case MemoryKind::kUpload:
      // Small and read once a token: in the device's memory where the host can write there.
      wishes = {force_staging_ ? kHost : kHost | VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, kHost};
      break;
    case MemoryKind::kReadback:
      wishes = {kHost | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, kHost};
      break;
  }
  for (const VkMemoryPropertyFlags wish : wishes) {
    for (std::uint32_t type = 0; type < memory_.memoryTypeCount; ++type) {
      if ((allowed >> type & 1U) != 0 && (memory_flags(type) & wish) == wish) return type;
    }
  }
  return std::nullopt;
}

Result<DeviceBuffer> VulkanDevice::allocate(std::uint64_t bytes, MemoryKind kind) {
  bytes = (std::max<std::uint64_t>(bytes, 1) + 255) / 256 * 256;
  const std::string wanted = std::to_string(bytes) + " bytes of device memory";
  if (bytes > info_.most_allocation) {
    return invalid_argument(wanted + " in one piece; the device gives at most " +
                            std::to_string(info_.most_allocation));
  }
  if (kind == MemoryKind::kDevice && budget_ != 0 && taken_ + bytes > budget_) {
    return make_error(StatusCode::kIo, Where{},
                      wanted + " do not fit: " +
                          std::to_string(budget_ - std::min(budget_, taken_)) + " are free",
                      "lower --vram-mb or -c, or use --backend cpu");
  }
  DeviceBuffer buffer;
  buffer.device_ = this;
  buffer.size_ = bytes;
  const VkBufferCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
      .pNext = nullptr,
      .flags = 0,
      .size = bytes,
      .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
               VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
      .sharingMode = VK_SHARING_MODE_EXCLUSIVE,
      .queueFamilyIndexCount = 0,
      .pQueueFamilyIndices = nullptr};
  VkResult result = api_->vkCreateBuffer(device_, &info, nullptr, &buffer.buffer_);
  if (result != VK_SUCCESS) return vulkan_error(wanted.c_str(), result);
  VkMemoryRequirements needs{};
  api_->vkGetBufferMemoryRequirements(device_, buffer.buffer_, &needs);
  const std::optional<std::uint32_t> type = memory_type(needs.memoryTypeBits, kind);
  if (!type.has_value()) return vulkan_error(wanted.c_str(), VK_ERROR_FEATURE_NOT_PRESENT);
  buffer.is_device_local_ = (memory_flags(*type) & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
  const VkMemoryAllocateFlagsInfo flags{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                        .pNext = nullptr,
                                        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
                                        .deviceMask = 0};
  const VkMemoryAllocateInfo allocate{.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                      .pNext = &flags,
                                      .allocationSize = needs.size,
                                      .memoryTypeIndex = *type};
  result = api_->vkAllocateMemory(device_, &allocate, nullptr, &buffer.memory_);
  if (result != VK_SUCCESS) return vulkan_error(wanted.c_str(), result);
  if (kind == MemoryKind::kDevice) taken_ += buffer.taken_ = needs.size;
  result = api_->vkBindBufferMemory(device_, buffer.buffer_, buffer.memory_, 0);
  if (result != VK_SUCCESS) return vulkan_error(wanted.c_str(), result);
  if (kind != MemoryKind::kDevice || maps_device_memory_) {
    void* mapped = nullptr;
    result = api_->vkMapMemory(device_, buffer.memory_, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (result != VK_SUCCESS) return vulkan_error("mapping memory", result);
    buffer.mapped_ = static_cast<std::byte*>(mapped);
  }
  const VkBufferDeviceAddressInfo address{.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                          .pNext = nullptr,
                                          .buffer = buffer.buffer_};
  buffer.address_ = api_->vkGetBufferDeviceAddress(device_, &address);
  return buffer;
}

Status VulkanDevice::copy(VkBuffer from, std::uint64_t from_offset, VkBuffer to,
                          std::uint64_t to_offset, std::uint64_t bytes) {
  CommandList list(*this);
  list.copy(from, from_offset, to, to_offset, bytes);
  return run(list);
}

Status VulkanDevice::make_staging() {
  if (staging_.size() != 0) return Status::ok();
  MOE_ASSIGN_OR_RETURN(
      staging_,
      allocate(std::min(kStagingBytes, info_.most_allocation / 256 * 256), MemoryKind::kReadback));
  return Status::ok();
}

Status VulkanDevice::upload(const DeviceBuffer& to, std::uint64_t offset,
                            std::span<const std::byte> bytes) {
  if (to.mapped() != nullptr) {
    std::memcpy(to.mapped() + offset, bytes.data(), bytes.size());
    return Status::ok();
  }
  MOE_RETURN_IF_ERROR(make_staging());
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), staging_.size());
    std::memcpy(staging_.mapped(), bytes.data(), size);
    MOE_RETURN_IF_ERROR(copy(staging_.handle(), 0, to.handle(), offset, size));
    bytes = bytes.subspan(size);
    offset += size;
  }
  return Status::ok();
}

Status VulkanDevice::download(const DeviceBuffer& from, std::uint64_t offset,
                              std::span<std::byte> bytes) {
  if (from.mapped() != nullptr) {
    std::memcpy(bytes.data(), from.mapped() + offset, bytes.size());
    return Status::ok();
  }
  MOE_RETURN_IF_ERROR(make_staging());
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), staging_.size());
    MOE_RETURN_IF_ERROR(copy(from.handle(), offset, staging_.handle(), 0, size));
    std::memcpy(bytes.data(), staging_.mapped(), size);
    bytes = bytes.subspan(size);
    offset += size;
  }
  return Status::ok();
}

Result<VulkanKernel> VulkanDevice::make_kernel(const KernelRequest& request) {
  const std::vector<std::uint32_t> words = shader_code(request.shader);
  if (words.empty()) return invalid_argument("no shader " + std::string(request.shader));
  const VkShaderModuleCreateInfo module_info{.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                             .pNext = nullptr,
                                             .flags = 0,
                                             .codeSize = words.size() * sizeof(std::uint32_t),
                                             .pCode = words.data()};
  VkShaderModule module = VK_NULL_HANDLE;
  const std::string what = "the shader " + std::string(request.shader);
  VkResult result = api_->vkCreateShaderModule(device_, &module_info, nullptr, &module);
  if (result != VK_SUCCESS) return vulkan_error(what.c_str(), result);
  std::vector<VkSpecializationMapEntry> entries;
  for (std::uint32_t i = 0; i < request.constants.size(); ++i) {
    entries.push_back(
        {i, static_cast<std::uint32_t>(i * sizeof(std::uint32_t)), sizeof(std::uint32_t)});
  }
  const VkSpecializationInfo constants{.mapEntryCount = static_cast<std::uint32_t>(entries.size()),
                                       .pMapEntries = entries.data(),
                                       .dataSize = request.constants.size() * sizeof(std::uint32_t),
                                       .pData = request.constants.data()};
  const VkComputePipelineCreateInfo info{
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .pNext = nullptr,
      .flags = has_code_sizes_ ? static_cast<VkPipelineCreateFlags>(
                                     VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR)
                               : 0,
      .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                .pNext = nullptr,
                .flags = 0,
                .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                .module = module,
                .pName = "main",
                .pSpecializationInfo = &constants},
      .layout = layout_,
      .basePipelineHandle = VK_NULL_HANDLE,
      .basePipelineIndex = -1};
  VulkanKernel kernel;
  result = api_->vkCreateComputePipelines(device_, cache_, 1, &info, nullptr, &kernel.pipeline_);
  api_->vkDestroyShaderModule(device_, module, nullptr);
  if (result != VK_SUCCESS) {
    return unsupported(Where{}, "the driver refuses " + what + ": " + vulkan_result_name(result),
                       "update the driver, or use --backend cpu");
  }
  kernel.device_ = this;
  kernel.name_ = request.shader;
  return kernel;
}

std::string VulkanDevice::kernel_statistics(const VulkanKernel& kernel) const {
  if (!has_code_sizes_ || api_->vkGetPipelineExecutableStatisticsKHR == nullptr) return {};
  const VkPipelineExecutableInfoKHR of{.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                       .pNext = nullptr,
                                       .pipeline = kernel.handle(),
                                       .executableIndex = 0};
  std::uint32_t count = 0;
  (void)api_->vkGetPipelineExecutableStatisticsKHR(device_, &of, &count, nullptr);
  std::vector<VkPipelineExecutableStatisticKHR> all(
      count, {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR,
              .pNext = nullptr,
              .name = {},
              .description = {},
              .format = {},
              .value = {}});
  (void)api_->vkGetPipelineExecutableStatisticsKHR(device_, &of, &count, all.data());
  std::string text;
  for (const VkPipelineExecutableStatisticKHR& one : all) {
    if (!text.empty()) text += ", ";
    text += printable(one.name) + " " + std::to_string(one.value.u64);
  }
  return text;
}

Status VulkanDevice::run(CommandList& list) {
  MOE_RETURN_IF_ERROR(submit(list));
  MOE_RETURN_IF_ERROR(wait());
  return list.order_status();
}

Status VulkanDevice::submit(CommandList& list) {
  MOE_RETURN_IF_ERROR(list.finish());
  const std::uint64_t value = submissions_ + 1;
  const VkTimelineSemaphoreSubmitInfo timeline{
      .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
      .pNext = nullptr,
      .waitSemaphoreValueCount = 0,
      .pWaitSemaphoreValues = nullptr,
      .signalSemaphoreValueCount = 1,
      .pSignalSemaphoreValues = &value};
  const VkCommandBuffer buffer = list.handle();
  const VkSubmitInfo submit{.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                            .pNext = &timeline,
                            .waitSemaphoreCount = 0,
                            .pWaitSemaphores = nullptr,
                            .pWaitDstStageMask = nullptr,
                            .commandBufferCount = 1,
                            .pCommandBuffers = &buffer,
                            .signalSemaphoreCount = 1,
                            .pSignalSemaphores = &timeline_};
  const VkResult result = api_->vkQueueSubmit(queue_, 1, &submit, VK_NULL_HANDLE);
  if (result != VK_SUCCESS) return vulkan_error("submitting work", result);
  submissions_ = value;
  return Status::ok();
}

// A token is done in about the time that it takes to wake a sleeping thread, so this one looks for
// itself for a while before it sleeps.
Status VulkanDevice::wait_for(std::uint64_t value) {
  constexpr auto kLook = std::chrono::milliseconds(20);
  const auto begin = std::chrono::steady_clock::now();
  VkResult result = VK_SUCCESS;
  while (info_.type != VulkanDeviceType::kCpu && std::chrono::steady_clock::now() - begin < kLook) {
    std::uint64_t reached = 0;
    result = api_->vkGetSemaphoreCounterValue(device_, timeline_, &reached);
    if (result != VK_SUCCESS) return vulkan_error("waiting for the device", result);
    if (reached >= value) return Status::ok();
  }
  const VkSemaphoreWaitInfo wait{.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                 .pNext = nullptr,
                                 .flags = 0,
                                 .semaphoreCount = 1,
                                 .pSemaphores = &timeline_,
                                 .pValues = &value};
  result = api_->vkWaitSemaphores(device_, &wait, ~std::uint64_t{0});
  if (result != VK_SUCCESS) return vulkan_error("waiting for the device", result);
  return Status::ok();
}

std::vector<std::byte> VulkanDevice::pipeline_cache() const {
  std::size_t size = 0;
  if (api_->vkGetPipelineCacheData(device_, cache_, &size, nullptr) != VK_SUCCESS) return {};
  std::vector<std::byte> bytes(size);
  if (api_->vkGetPipelineCacheData(device_, cache_, &size, bytes.data()) != VK_SUCCESS) return {};
  bytes.resize(size);
  return bytes;
}

Status VulkanDevice::load_pipeline_cache(std::span<const std::byte> bytes) {
  if (cache_ != VK_NULL_HANDLE) api_->vkDestroyPipelineCache(device_, cache_, nullptr);
  const VkPipelineCacheCreateInfo info{.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO,
                                       .pNext = nullptr,
                                       .flags = 0,
                                       .initialDataSize = bytes.size(),
                                       .pInitialData = bytes.data()};
  const VkResult result = api_->vkCreatePipelineCache(device_, &info, nullptr, &cache_);
  if (result != VK_SUCCESS) return vulkan_error("the pipeline cache", result);
  return Status::ok();
}

}  // namespace moepack
