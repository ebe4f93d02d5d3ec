// A layer in two lanes at once: the experts that lie on the device run there, the others on the
// processor, whose sums the device adds before it goes on. What passes between the two lies in
// memory that both see: the residual stream to the processor, the sums back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/placement/lane_counter.h"
#include "runtime/vulkan/cold_lane.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/device_experts.h"
#include "runtime/vulkan/device_work.h"
#include "runtime/vulkan/path.h"
#include "shaders/shared_types.h"

namespace moepack {

// Of batches of few rows (kFewRows). One thread.
class LaneJoin {
 public:
  // The device outlives it.
  static Result<std::unique_ptr<LaneJoin>> create(VulkanDevice& device, std::uint32_t hidden_size,
                                                  std::unique_ptr<ColdLane> cold);

  // Records that the host sees the residual stream as it is before a layer's experts; no barrier.
  void record_hidden(const PathParts& parts, CommandList& list, const BatchShape& shape) const;
  // Records hidden += what compute() gave, or what the layer makes of it and of its results on the
  // device (DeviceMoe::is_plain_sum), with a barrier behind.
  void record_join(const PathParts& parts, CommandList& list, const BatchShape& shape,
                   std::uint32_t layer) const;

  // Divides a layer's choices [rows, slots] between the lanes. Rows whose `is_live` is 0 use
  // nothing.
  void divide(std::span<const shader::Choice> choices, std::size_t slots,
              std::span<const std::uint8_t> is_live, std::uint32_t layer,
              const DeviceExperts& experts, std::uint32_t num_experts);
  bool has_cold() const { return !cold_uses_.empty(); }
  // Whether the device has anything to do: experts there, or a shared one.
  bool has_hot() const { return has_hot_; }

  // Submits `hot` (null: nothing is hot), computes the cold lane beside it and waits for both. Rows
  // that lack an expert are in failed_rows(). An error of the device is final.
  Status run(VulkanDevice& device, CommandList* hot, std::uint32_t layer, std::size_t rows,
             ExpertStore& store);
  std::vector<FailedRow> failed_rows() const { return cold_->failed_rows(); }

  // Notes uses and times there from now on; null: nowhere. It outlives the use.
  void count_in(LaneCounter* counter) { counter_ = counter; }

  const LaneTimes& times() const { return times_; }
  void reset_times() { times_ = {}; }

 private:
  void count_uses(std::span<const shader::Choice> choices, std::size_t slots,
                  std::span<const std::uint8_t> is_live, std::uint32_t layer,
                  const DeviceExperts& experts, std::uint32_t num_experts);
  Status compute_cold(std::uint32_t layer, std::size_t rows, ExpertStore& store);

  std::unique_ptr<ColdLane> cold_;
  std::uint64_t hidden_size_ = 0;
  DeviceBuffer hidden_;   // [kFewRows, H]: written by the device
  DeviceBuffer sums_;     // [kFewRows, H]: written by the host
  DeviceBuffer choices_;  // [kFewRows] Choice: each row's sum, once
  std::vector<Assignment> cold_uses_;
  bool has_hot_ = false;
  LaneCounter* counter_ = nullptr;
  LaneTimes times_;
};

}  // namespace moepack
