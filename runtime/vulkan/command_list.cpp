#include "runtime/vulkan/command_list.h"

#include <algorithm>
#include <cstring>

namespace moepack {

CommandList::CommandList(VulkanDevice& device, CommandListOptions options) : device_(device) {
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
  if (error_ != VK_SUCCESS) return;
  if (!options.is_timed) {
    if (options.is_ordered && device.takes_ordered_programs()) begin_order();
    return;
  }
  if (device.info().timestamp_ns == 0) return;
  const VkQueryPoolCreateInfo pool{.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                   .pNext = nullptr,
                                   .flags = 0,
                                   .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                   .queryCount = kMostTimes,
                                   .pipelineStatistics = 0};
  error_ = api.vkCreateQueryPool(device.handle(), &pool, nullptr, &times_);
  if (error_ != VK_SUCCESS) return;
  api.vkCmdResetQueryPool(buffer_, times_, 0, kMostTimes);
  api.vkCmdWriteTimestamp(buffer_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, times_, time_count_++);
}

// Without memory for counters the list has barriers.
void CommandList::begin_order() {
  Result<DeviceBuffer> records = device_.allocate(StageOrder::kBytes, MemoryKind::kDevice);
  Result<DeviceBuffer> start = device_.allocate(StageOrder::kBytes, MemoryKind::kUpload);
  Result<DeviceBuffer> lost = device_.allocate(sizeof(std::uint32_t), MemoryKind::kReadback);
  if (!records.is_ok() || !start.is_ok() || !lost.is_ok()) return;
  auto counters = std::make_unique<Counters>();
  counters->records = std::move(records).value();
  counters->start = std::move(start).value();
  counters->lost = std::move(lost).value();
  std::memset(counters->lost.mapped(), 0, sizeof(std::uint32_t));
  copy(counters->start.handle(), 0, counters->records.handle(), 0, StageOrder::kBytes);
  full_barrier();
  order_ = std::move(counters);
}

// What the counters are set to when the list begins, which is known when it ends.
void CommandList::write_start() {
  std::byte* record = order_->start.mapped();
  const std::uint64_t lost = order_->lost.address();
  for (const std::uint32_t count : order_->stages.counts()) {
    std::memcpy(record + MOE_STAGE_LEFT * sizeof(count), &count, sizeof(count));
    std::memset(record + MOE_STAGE_WRONG * sizeof(count), 0, sizeof(count));
    std::memcpy(record + MOE_STAGE_LOST * sizeof(count), &lost, sizeof(lost));
    record += MOE_STAGE_BYTES;
  }
}

Status CommandList::order_status() const {
  std::uint32_t lost = 0;
  if (order_ != nullptr) std::memcpy(&lost, order_->lost.mapped(), sizeof(lost));
  if (lost == 0) return Status::ok();
  return make_error(StatusCode::kIo, Where{},
                    "the device does not run its stages in the order in which they wait",
                    "use --gpu-order barriers");
}

void CommandList::enter_stage(const VulkanKernel& kernel) {
  if (order_ != nullptr && order_->stages.needs_barrier(kernel.is_ordered())) {
    barrier_of_dispatches();
  }
}

void CommandList::push_stage(const VulkanKernel& kernel, GroupCount groups) {
  if (order_ == nullptr) return;
  if (!kernel.is_ordered()) return order_->stages.add_unordered();
  const std::uint32_t stage = order_->stages.add(std::uint64_t{groups.x} * groups.y * groups.z);
  const std::uint64_t record = order_->records.address() + std::uint64_t{stage} * MOE_STAGE_BYTES;
  device_.api().vkCmdPushConstants(buffer_, device_.layout(), VK_SHADER_STAGE_COMPUTE_BIT,
                                   MOE_STAGE_AT, sizeof(record), &record);
}

// Ends the span of the commands since the last barrier.
void CommandList::note_time() {
  if (times_ == VK_NULL_HANDLE || time_count_ == kMostTimes) return;
  device_.api().vkCmdWriteTimestamp(buffer_, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, times_,
                                    time_count_++);
  TimedSpan span{.kernels = {}, .stage = stage_};
  for (const auto& [name, count] : since_barrier_) {
    if (!span.kernels.empty()) span.kernels += ", ";
    span.kernels += name;
    if (count > 1) span.kernels += " x" + std::to_string(count);
  }
  since_barrier_.clear();
  spans_.push_back(std::move(span));
}

std::vector<double> CommandList::span_seconds() const {
  std::vector<std::uint64_t> ticks(time_count_);
  std::vector<double> seconds;
  if (times_ == VK_NULL_HANDLE ||
      device_.api().vkGetQueryPoolResults(
          device_.handle(), times_, 0, time_count_, ticks.size() * sizeof(std::uint64_t),
          ticks.data(), sizeof(std::uint64_t), VK_QUERY_RESULT_64_BIT) != VK_SUCCESS) {
    return seconds;
  }
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    // A counter of fewer than 64 bits begins again now and then.
    const std::uint64_t passed = ticks[i] < ticks[i - 1] ? 0 : ticks[i] - ticks[i - 1];
    seconds.push_back(static_cast<double>(passed) * device_.info().timestamp_ns * 1e-9);
  }
  return seconds;
}

CommandList::~CommandList() {
  if (times_ != VK_NULL_HANDLE) {
    device_.api().vkDestroyQueryPool(device_.handle(), times_, nullptr);
  }
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
  if (times_ == VK_NULL_HANDLE) return;
  const auto same = std::find_if(since_barrier_.begin(), since_barrier_.end(),
                                 [&](const auto& k) { return k.first == kernel.name(); });
  if (same == since_barrier_.end()) {
    since_barrier_.emplace_back(kernel.name(), 1);
  } else {
    ++same->second;
  }
}

// A kernel that the driver refused has no pipeline (kernel_set.h).
bool CommandList::can_record(const VulkanKernel& kernel) {
  if (error_ == VK_SUCCESS && kernel.handle() == VK_NULL_HANDLE) {
    error_ = VK_ERROR_INITIALIZATION_FAILED;
  }
  return error_ == VK_SUCCESS;
}

void CommandList::record(const VulkanKernel& kernel, const void* args, std::uint32_t bytes,
                         GroupCount groups) {
  if (!can_record(kernel) || groups.x == 0 || groups.y == 0 || groups.z == 0) return;
  enter_stage(kernel);
  bind(kernel, args, bytes);
  push_stage(kernel, groups);
  device_.api().vkCmdDispatch(buffer_, groups.x, groups.y, groups.z);
}

void CommandList::record_indirect(const VulkanKernel& kernel, const void* args, std::uint32_t bytes,
                                  const DeviceBuffer& grid, std::uint64_t offset) {
  if (!can_record(kernel)) return;
  if (kernel.is_ordered()) {  // its work groups cannot be counted
    error_ = VK_ERROR_FEATURE_NOT_PRESENT;
    return;
  }
  enter_stage(kernel);
  bind(kernel, args, bytes);
  push_stage(kernel, {});
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
  if (order_ != nullptr) order_->stages.note_barrier();
  note_time();
}

void CommandList::barrier() {
  if (order_ != nullptr) {
    order_->stages.end_stage();
  } else {
    barrier_of_dispatches();
  }
}

void CommandList::barrier_of_dispatches() {
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

Status CommandList::finish() {
  if (!is_finished_ && error_ == VK_SUCCESS) {
    full_barrier();  // the host sees the results
    if (order_ != nullptr) write_start();
    error_ = device_.api().vkEndCommandBuffer(buffer_);
  }
  is_finished_ = true;
  if (error_ != VK_SUCCESS) return vulkan_error("recording commands", error_);
  return Status::ok();
}

}  // namespace moepack
