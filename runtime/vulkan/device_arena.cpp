#include "runtime/vulkan/device_arena.h"

#include <algorithm>
#include <utility>

namespace moepack {

DeviceArena::DeviceArena(VulkanDevice& device, std::uint64_t block_bytes)
    : device_(&device),
      block_bytes_(std::min(block_bytes, device.info().most_allocation) / kAlignment * kAlignment) {
}

Result<DeviceRange> DeviceArena::take(std::uint64_t bytes) {
  bytes = (std::max<std::uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  if (blocks_.empty() || blocks_.back()->size() - used_ < bytes) {
    MOE_ASSIGN_OR_RETURN(DeviceBuffer block,
                         device_->allocate(std::max(bytes, block_bytes_), MemoryKind::kDevice));
    blocks_.push_back(std::make_unique<DeviceBuffer>(std::move(block)));
    used_ = 0;
  }
  const DeviceBuffer& block = *blocks_.back();
  const DeviceRange range{.buffer = &block, .offset = used_, .address = block.address() + used_};
  used_ += bytes;
  taken_ += bytes;
  return range;
}

Result<DeviceRange> DeviceArena::put(std::span<const std::byte> bytes) {
  // Kernels read whole words, the last of which may reach beyond the bytes.
  MOE_ASSIGN_OR_RETURN(const DeviceRange range, take(bytes.size() + 4));
  MOE_RETURN_IF_ERROR(device_->upload(*range.buffer, range.offset, bytes));
  return range;
}

}  // namespace moepack
