// Commands recorded once and run any number of times: dispatches of kernels and barriers between
// them. What changes from run to run lies in memory that the kernels read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "formats/base/status.h"
#include "runtime/model/stage_times.h"
#include "runtime/vulkan/stage_order.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

struct GroupCount {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

// What was recorded between two barriers, as the device's clock sees it.
struct TimedSpan {
  std::string kernels;  // names, as "matvec_q4 x3, matvec_bf16"
  Stage stage = Stage::kOther;
};

struct CommandListOptions {
  bool is_timed = false;    // the device notes the time at every barrier; read with span_seconds()
  bool is_ordered = false;  // what follows a barrier() may wait by counters instead (stage_order.h)
};

// Unmovable; the device outlives it, and so do the kernels and buffers that it names. Recording
// cannot fail by itself: an error of the driver is kept and given by run().
class CommandList {
 public:
  // A timed list, and one of a device that does not take ordered programs, has barriers alone.
  explicit CommandList(VulkanDevice& device, CommandListOptions options = {});
  ~CommandList();
  CommandList(const CommandList&) = delete;
  CommandList& operator=(const CommandList&) = delete;

  // Args is the struct of the kernel's _args.h. An empty grid records nothing.
  template <typename Args>
  void dispatch(const VulkanKernel& kernel, const Args& args, GroupCount groups) {
    static_assert(sizeof(Args) <= kMostPushBytes && std::is_trivially_copyable_v<Args>);
    record(kernel, &args, sizeof(Args), groups);
  }
  // The grid lies in the buffer at `offset`: three 32-bit numbers, a multiple of 4. Not of an
  // ordered program, whose work groups have to be counted.
  template <typename Args>
  void dispatch_indirect(const VulkanKernel& kernel, const Args& args, const DeviceBuffer& grid,
                         std::uint64_t offset) {
    static_assert(sizeof(Args) <= kMostPushBytes && std::is_trivially_copyable_v<Args>);
    record_indirect(kernel, &args, sizeof(Args), grid, offset);
  }
  // What the dispatches so far wrote is done and seen by the dispatches that follow.
  void barrier();
  // Whether kernels of ordered programs may be recorded: those named NAME_ordered. The list adds
  // their stage to their arguments.
  bool is_ordered() const { return order_ != nullptr; }
  // The same for everything: dispatches, copies and fills on both sides, indirect grids and the
  // host behind.
  void full_barrier();
  void copy(VkBuffer from, std::uint64_t from_offset, VkBuffer to, std::uint64_t to_offset,
            std::uint64_t bytes);
  // `bytes` a multiple of 4.
  void fill(VkBuffer buffer, std::uint64_t offset, std::uint64_t bytes, std::uint32_t value);
  // What follows belongs to this stage of a token.
  void stage(Stage stage) { stage_ = stage; }
  // Of a timed list that has run: what lies between barriers, and its seconds.
  std::span<const TimedSpan> spans() const { return spans_; }
  std::vector<double> span_seconds() const;

  // Ends recording; VulkanDevice::run() does it where it was not done. The error of recording.
  Status finish();
  VkCommandBuffer handle() const { return buffer_; }

  std::uint32_t dispatches() const { return dispatches_; }
  std::uint32_t barriers() const { return barriers_; }  // counters are none
  // Of a list that has run: kIo when a work group gave up waiting for a stage, whereby all that the
  // list wrote is worthless.
  Status order_status() const;

 private:
  void barrier(VkPipelineStageFlags from, VkAccessFlags written, VkPipelineStageFlags to,
               VkAccessFlags read);
  // Counters of the device, what they start with, and the word that tells of a wait given up.
  struct Counters {
    StageOrder stages;
    DeviceBuffer records;
    DeviceBuffer start;
    DeviceBuffer lost;
  };
  void begin_order();
  void write_start();
  void barrier_of_dispatches();
  // Before a dispatch: the barrier that it needs.
  void enter_stage(const VulkanKernel& kernel);
  void push_stage(const VulkanKernel& kernel, GroupCount groups);
  void bind(const VulkanKernel& kernel, const void* args, std::uint32_t bytes);
  bool can_record(const VulkanKernel& kernel);
  void record(const VulkanKernel& kernel, const void* args, std::uint32_t bytes, GroupCount groups);
  void record_indirect(const VulkanKernel& kernel, const void* args, std::uint32_t bytes,
                       const DeviceBuffer& grid, std::uint64_t offset);

  VulkanDevice& device_;
  VkCommandBuffer buffer_ = VK_NULL_HANDLE;
  VkPipeline bound_ = VK_NULL_HANDLE;
  VkResult error_ = VK_SUCCESS;
  bool is_finished_ = false;
  std::unique_ptr<Counters> order_;  // of an ordered list
  std::uint32_t dispatches_ = 0;
  std::uint32_t barriers_ = 0;

  void note_time();
  static constexpr std::uint32_t kMostTimes = 4096;
  VkQueryPool times_ = VK_NULL_HANDLE;  // of a timed list
  std::uint32_t time_count_ = 0;
  Stage stage_ = Stage::kOther;
  std::vector<std::pair<std::string, std::uint32_t>> since_barrier_;  // kernels and how often
  std::vector<TimedSpan> spans_;
};

}  // namespace moepack
