// Device memory in pieces of one life: taken one after another from large allocations, given back
// together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

// A piece of an arena; it lives as long as the arena.
struct DeviceRange {
  const DeviceBuffer* buffer = nullptr;
  std::uint64_t offset = 0;   // in the buffer
  std::uint64_t address = 0;  // a multiple of DeviceArena::kAlignment
};

// Move-only; the device outlives it.
class DeviceArena {
 public:
  // Of pieces, and of their addresses.
  static constexpr std::uint64_t kAlignment = 256;

  // `block_bytes`: of an allocation, where no single piece is larger; the device's own limit
  // stands.
  DeviceArena(VulkanDevice& device, std::uint64_t block_bytes);

  // kInvalidArgument when the piece is above the device's limit for one allocation, kIo when memory
  // is short.
  Result<DeviceRange> take(std::uint64_t bytes);
  // The same with these bytes in it.
  Result<DeviceRange> put(std::span<const std::byte> bytes);

  std::uint64_t taken_bytes() const { return taken_; }

 private:
  VulkanDevice* device_;
  std::uint64_t block_bytes_;
  // Buffers do not move when the list grows: ranges point to them.
  std::vector<std::unique_ptr<DeviceBuffer>> blocks_;
  std::uint64_t used_ = 0;   // of the last block
  std::uint64_t taken_ = 0;  // of all
};

}  // namespace moepack
