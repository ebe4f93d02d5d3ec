// Where the residual stream enters and leaves a device that computes some of a model's layers:
// memory that the host sees, on either side.
#pragma once

#include <cstdint>
#include <span>

#include "formats/base/status.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/path.h"
#include "runtime/vulkan/stage_place.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

// Of batches of at most `rows` rows of H = hidden_size float32 values. One thread.
class StagePort {
 public:
  // The device outlives it. kIo when memory is short.
  static Result<StagePort> create(VulkanDevice& device, const StagePlace& place, std::uint64_t rows,
                                  std::uint32_t hidden_size);

  // Records hidden = in(), with row_error cleared as by the embedding and a barrier behind.
  void record_in(const PathParts& parts, CommandList& list, const BatchShape& shape) const;
  // Records out() = hidden, no barrier.
  void record_out(const PathParts& parts, CommandList& list, const BatchShape& shape) const;

  // [rows, H]: to be written before the batch, unless the stage is the first.
  std::span<float> in(std::size_t rows) const;
  // [rows, H]: of the last batch, unless the stage is the last.
  std::span<const float> out(std::size_t rows) const;

 private:
  std::uint64_t hidden_size_ = 0;
  std::uint64_t clear_at_ = 0;  // in input_: [rows] words of row_error
  DeviceBuffer input_;
  DeviceBuffer output_;
};

}  // namespace moepack
