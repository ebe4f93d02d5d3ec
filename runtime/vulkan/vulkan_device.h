// A GPU opened for computing: one queue, its memory, its features. Everything of the Vulkan backend
// hangs on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/vulkan/vulkan_api.h"

namespace moepack {

// How the stages of a token follow each other on a GPU (stage_order.h).
enum class StageOrdering : std::uint8_t {
  kAuto,      // counters where the device is known to start work groups in order
  kBarriers,  // between all of them
  kCounters,
};

struct VulkanOptions {
  std::optional<std::uint32_t> device =
      std::nullopt;  // index of list_vulkan_devices(); nullopt: the best one
  StageOrdering ordering = StageOrdering::kAuto;
  // For tests, each as if the device were so; 0: as it is.
  std::uint64_t memory_budget = 0;    // bytes of device memory that may be taken
  std::uint64_t most_allocation = 0;  // bytes of one allocation
  bool force_staging = false;         // device memory is never written by the host directly
  // Products of few rows with inputs in fixed point, where the device multiplies bytes
  // (docs/decisions.md, 50).
  bool wants_fixed_products = true;
  bool wants_code_sizes = false;  // kernel_statistics() has something to tell
  // Loads the validation layers with checks of synchronization; what they say goes to the function,
  // which is called from whatever thread is in a call of Vulkan.
  std::function<void(const std::string&)> validation = nullptr;
};

enum class VulkanDeviceType : std::uint8_t { kDiscrete, kIntegrated, kVirtual, kCpu, kOther };

// What a device says of itself.
struct VulkanDeviceInfo {
  std::uint32_t index = 0;
  std::string name = {};
  VulkanDeviceType type = VulkanDeviceType::kOther;
  std::string driver = {};  // its name and version
  std::uint32_t api_version = 0;
  std::uint64_t memory_bytes = 0;  // of the device-local heaps
  bool is_unified = false;         // the host's memory is the device's
  std::uint32_t subgroup_size = 0;
  std::uint32_t least_subgroup = 0;  // that a kernel may be compiled for
  // Work groups of a dispatch start when all of those before have started, for all that is known.
  bool starts_in_order = false;
  std::uint32_t shared_bytes = 0;        // of a work group
  std::uint32_t group_threads = 0;       // most threads of a work group
  bool has_subgroup_operations = false;  // those that kernels use
  std::uint64_t most_allocation = 0;     // bytes of one allocation
  float timestamp_ns = 0;                // per tick; 0: no timestamps
  bool has_integer_dot = false;          // VK_KHR_shader_integer_dot_product
  bool has_cooperative_matrix = false;   // VK_NV_cooperative_matrix with 16x16x16 f16, f32 sums
  // Why it cannot be used; empty: it can.
  std::string lacks = {};
};

// Every device of the machine, usable or not. kUnsupported without a loader.
Result<std::vector<VulkanDeviceInfo>> list_vulkan_devices();
// "discrete", "integrated", …
std::string_view vulkan_device_type_name(VulkanDeviceType type);

// Where memory lies, by who uses it.
enum class MemoryKind : std::uint8_t {
  kDevice,    // the device's own
  kUpload,    // written by the host, in order; read by the device
  kReadback,  // written by the device, read by the host
};

class VulkanDevice;

// Memory with an address on the device. Move-only; the device outlives it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { release(); }

  std::uint64_t address() const { return address_; }  // a multiple of 256
  std::uint64_t size() const { return size_; }
  // The host's view; null where there is none. Coherent.
  std::byte* mapped() const { return mapped_; }
  // Whether it lies in the device's own memory.
  bool is_device_local() const { return is_device_local_; }
  VkBuffer handle() const { return buffer_; }

 private:
  friend class VulkanDevice;
  void release();

  VulkanDevice* device_ = nullptr;
  bool is_device_local_ = false;
  VkBuffer buffer_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  std::uint64_t address_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t taken_ = 0;  // of the budget
  std::byte* mapped_ = nullptr;
};

struct KernelRequest {
  std::string_view shader = {};  // a name of the catalog
  std::vector<std::uint32_t> constants =
      {};  // specialization constants 0, 1, 2 …; 0 is local_size_x
};
// What every device has.
constexpr std::uint32_t kMostPushBytes = 128;
constexpr std::string_view kOrderedSuffix = "_ordered";  // of their names

// A compute pipeline. Move-only; the device outlives it.
class VulkanKernel {
 public:
  VulkanKernel() = default;
  VulkanKernel(VulkanKernel&& other) noexcept { *this = std::move(other); }
  VulkanKernel& operator=(VulkanKernel&& other) noexcept;
  VulkanKernel(const VulkanKernel&) = delete;
  VulkanKernel& operator=(const VulkanKernel&) = delete;
  ~VulkanKernel() { release(); }

  VkPipeline handle() const { return pipeline_; }
  const std::string& name() const { return name_; }  // the shader's
  // NAME_ordered: stage_order.h.
  bool is_ordered() const { return name_.ends_with(kOrderedSuffix); }

 private:
  friend class VulkanDevice;
  void release();

  VulkanDevice* device_ = nullptr;
  VkPipeline pipeline_ = VK_NULL_HANDLE;
  std::string name_;
};

class CommandList;

// One thread at a time uses a device and what was made with it.
class VulkanDevice {
 public:
  // kUnsupported: no loader, no such device, or features missing, by name.
  static Result<std::unique_ptr<VulkanDevice>> open(const VulkanOptions& options);
  ~VulkanDevice();
  VulkanDevice(const VulkanDevice&) = delete;
  VulkanDevice& operator=(const VulkanDevice&) = delete;

  const VulkanDeviceInfo& info() const { return info_; }
  const VulkanApi& api() const { return *api_; }
  VkDevice handle() const { return device_; }
  VkPipelineLayout layout() const { return layout_; }
  VkCommandPool command_pool() const { return pool_; }

  // Bytes of device memory that may still be taken: the driver's word where it has one, else the
  // size of the heap, less what was taken; never above VulkanOptions::memory_budget.
  std::uint64_t free_bytes() const;
  std::uint64_t taken_bytes() const { return taken_; }
  // Whether allocate(kDevice) gives memory that the host sees too.
  bool has_mapped_device_memory() const { return maps_device_memory_; }

  // Whether lists may have stages that wait by counters (CommandListOptions::is_ordered).
  bool takes_ordered_programs() const { return takes_ordered_programs_; }

  // At least one byte. kIo when memory is short, with the bytes that were asked for;
  // kInvalidArgument above most_allocation.
  Result<DeviceBuffer> allocate(std::uint64_t bytes, MemoryKind kind);
  // Copies at once and returns when it is done; the ranges lie inside.
  Status upload(const DeviceBuffer& to, std::uint64_t offset, std::span<const std::byte> bytes);
  Status download(const DeviceBuffer& from, std::uint64_t offset, std::span<std::byte> bytes);

  // kInvalidArgument for a name that the catalog lacks; kUnsupported when the driver refuses it.
  Result<VulkanKernel> make_kernel(const KernelRequest& request);

  // What the driver says of a kernel's machine code, as "Binary Size 3584, Register Count 40";
  // empty where the device was opened without wants_code_sizes, or the driver says nothing.
  std::string kernel_statistics(const VulkanKernel& kernel) const;

  // Runs a recorded list to its end, CommandList::order_status() included. Any error is final for
  // the device.
  Status run(CommandList& list);
  // The two halves of run(): others may work while the device does. What the list writes is not
  // touched until wait() returns, which waits for all that was submitted.
  Status submit(CommandList& list);
  Status wait() { return wait_for(submissions_); }
  // Waits for the first so many submissions.
  Status wait_for(std::uint64_t submissions);
  // Submissions since the device was opened.
  std::uint64_t submissions() const { return submissions_; }

  // Pipelines compiled so far, as the driver keeps them; load() takes what an earlier run saved and
  // ignores what belongs to another driver.
  std::vector<std::byte> pipeline_cache() const;
  Status load_pipeline_cache(std::span<const std::byte> bytes);

 private:
  friend class DeviceBuffer;
  friend class VulkanKernel;
  VulkanDevice() = default;
  Status create_instance(const VulkanOptions& options);
  Status choose_device(const VulkanOptions& options);
  Status create_device();
  Status create_objects();
  Status make_staging();
  Status copy(VkBuffer from, std::uint64_t from_offset, VkBuffer to, std::uint64_t to_offset,
              std::uint64_t bytes);
  std::optional<std::uint32_t> memory_type(std::uint32_t allowed, MemoryKind kind) const;
  VkMemoryPropertyFlags memory_flags(std::uint32_t type) const;

  std::unique_ptr<VulkanApi> api_;
  VulkanDeviceInfo info_;
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
  std::function<void(const std::string&)> validation_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  std::uint32_t queue_family_ = 0;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  VkCommandPool pool_ = VK_NULL_HANDLE;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  VkPhysicalDeviceMemoryProperties memory_ = {};
  std::uint64_t submissions_ = 0;  // also the timeline's value
  std::uint64_t taken_ = 0;        // bytes of device memory
  std::uint64_t budget_ = 0;       // 0: none was set
  bool has_memory_budget_ = false;
  bool maps_device_memory_ = false;
  bool force_staging_ = false;
  bool takes_ordered_programs_ = false;
  bool has_code_sizes_ = false;
  DeviceBuffer staging_;  // made at its first use
};

}  // namespace moepack
