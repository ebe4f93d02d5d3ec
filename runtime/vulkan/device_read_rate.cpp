#include "runtime/vulkan/device_read_rate.h"

#include <algorithm>
#include <chrono>

#include "runtime/vulkan/command_list.h"
#include "shaders/read_sum_args.h"

namespace moepack {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{2} << 30;
constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kGroups = 2112;
constexpr int kReadings = 5;

}  // namespace

Result<double> device_read_rate(VulkanDevice& device) {
  // A processor that plays a GPU shows its rate with little.
  const bool is_cpu = device.info().type == VulkanDeviceType::kCpu;
  const std::uint64_t most = std::min(device.info().most_allocation / 2, kMostBytes);
  const std::uint64_t bytes =
      std::min(is_cpu ? most / 32 : most, device.free_bytes() / 2) / 4096 * 4096;
  MOE_ASSIGN_OR_RETURN(const DeviceBuffer memory, device.allocate(bytes, MemoryKind::kDevice));
  MOE_ASSIGN_OR_RETURN(const DeviceBuffer sums,
                       device.allocate(kGroups * sizeof(std::uint32_t), MemoryKind::kDevice));
  MOE_ASSIGN_OR_RETURN(const VulkanKernel kernel,
                       device.make_kernel({.shader = "read_sum", .constants = {kThreads}}));
  CommandList list(device);
  list.dispatch(kernel,
                shader::ReadSumArgs{.data = memory.address(),
                                    .sums = sums.address(),
                                    .vectors = static_cast<std::uint32_t>(memory.size() / 16)},
                {kGroups, 1, 1});
  double best = 0;
  for (int i = 0; i < kReadings; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    MOE_RETURN_IF_ERROR(device.run(list));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(memory.size()) / seconds.count());
  }
  return best;
}

}  // namespace moepack
