#include "runtime/vulkan/command_list.h"

namespace moepack {

CommandList::CommandList(VulkanDevice& device) : device_(device) {
  const VulkanApi& api = device.api();
  const VkCommandBufferAllocateInfo allocate{
      .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
      .pNext = nullptr,
      .commandPool = device.command_pool(),
      .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
      .commandBufferCount = 1};
  error_ = api.vkAllocateCommandBuffers(device.handle(), &allocate, &buffer_);
  if (error_ != VK_SUCCESS) return;
  const VkCommandBufferBeginInfo begin{.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                       .pNext = nullptr,
                                       .flags = 0,
                                       .pInheritanceInfo = nullptr};
  error_ = api.vkBeginCommandBuffer(buffer_, &begin);
}

CommandList::~CommandList() {
  if (buffer_ == VK_NULL_HANDLE) return;
  device_.api().vkFreeCommandBuffers(device_.handle(), device_.command_pool(), 1, &buffer_);
}

void CommandList::bind(const VulkanKernel& kernel, const void* args, std::uint32_t bytes) {
  const VulkanApi& api = device_.api();
  if (bound_ != kernel.handle()) {
    api.vkCmdBindPipeline(buffer_, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.handle());
    bound_ = kernel.handle();
  }
  api.vkCmdPushConstants(buffer_, device_.layout(), VK_SHADER_STAGE_COMPUTE_BIT, 0, bytes, args);
  ++dispatches_;
}

void CommandList::record(const VulkanKernel& kernel, const void* args, std::uint32_t bytes,
                         GroupCount groups) {
  if (error_ != VK_SUCCESS || groups.x == 0 || groups.y == 0 || groups.z == 0) return;
  bind(kernel, args, bytes);
  device_.api().vkCmdDispatch(buffer_, groups.x, groups.y, groups.z);
}

void CommandList::record_indirect(const VulkanKernel& kernel, const void* args, std::uint32_t bytes,
                                  const DeviceBuffer& grid, std::uint64_t offset) {
  if (error_ != VK_SUCCESS) return;
  bind(kernel, args, bytes);
  device_.api().vkCmdDispatchIndirect(buffer_, grid.handle(), offset);
}

void CommandList::barrier(VkPipelineStageFlags from, VkAccessFlags written, VkPipelineStageFlags to,
                          VkAccessFlags read) {
  if (error_ != VK_SUCCESS) return;
  const VkMemoryBarrier memory{.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                               .pNext = nullptr,
                               .srcAccessMask = written,
                               .dstAccessMask = read};
  device_.api().vkCmdPipelineBarrier(buffer_, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
  ++barriers_;
}

void CommandList::barrier() {
  barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
          VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
}

void CommandList::full_barrier() {
  barrier(VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
          VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
          VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT |
              VK_PIPELINE_STAGE_DRAW_INDIRECT_BIT | VK_PIPELINE_STAGE_HOST_BIT,
          VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
              VK_ACCESS_TRANSFER_WRITE_BIT | VK_ACCESS_INDIRECT_COMMAND_READ_BIT |
              VK_ACCESS_HOST_READ_BIT);
}

void CommandList::copy(VkBuffer from, std::uint64_t from_offset, VkBuffer to,
                       std::uint64_t to_offset, std::uint64_t bytes) {
  if (error_ != VK_SUCCESS || bytes == 0) return;
  const VkBufferCopy region{from_offset, to_offset, bytes};
  device_.api().vkCmdCopyBuffer(buffer_, from, to, 1, &region);
}

void CommandList::fill(VkBuffer buffer, std::uint64_t offset, std::uint64_t bytes,
                       std::uint32_t value) {
  if (error_ != VK_SUCCESS || bytes == 0) return;
  device_.api().vkCmdFillBuffer(buffer_, buffer, offset, bytes, value);
}

void CommandList::timestamp(VkQueryPool pool, std::uint32_t index) {
  if (error_ != VK_SUCCESS) return;
  device_.api().vkCmdWriteTimestamp(buffer_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, pool, index);
}

Status CommandList::finish() {
  if (!is_finished_ && error_ == VK_SUCCESS) {
    full_barrier();  // the host sees the results
    error_ = device_.api().vkEndCommandBuffer(buffer_);
  }
  is_finished_ = true;
  if (error_ != VK_SUCCESS) return vulkan_error("recording commands", error_);
  return Status::ok();
}

}  // namespace moepack
