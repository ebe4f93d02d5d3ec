// What the kernels must know of a batch: its rows and slices, the states of the slices, and which
// rows want logits. Written by the host before each run: into the device's memory where the host
// can reach it, else copied there as the run's first command; so a recorded list serves any batch
// of its shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/base/status.h"
#include "runtime/model/forward_backend.h"
#include "runtime/vulkan/command_list.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

class BatchTables {
 public:
  struct Limits {
    std::uint64_t rows = 0;
    std::uint64_t slices = 0;
    std::uint64_t layers = 0;
    std::uint64_t logit_rows = 0;
  };
  static Result<BatchTables> create(VulkanDevice& device, const Limits& limits);

  // Rows that belong to no slice, or to one whose status is not ok, are not live. The states are
  // VulkanState.
  void write(std::span<const std::int32_t> tokens, std::span<const BatchSlice> slices);
  // Which rows of the batch the logits are of: at most Limits::logit_rows.
  void write_logit_rows(std::span<const std::size_t> rows);
  // Takes what was written to the device, with a barrier behind, where that needs a command.
  void record_copy(CommandList& list) const;

  // Addresses on the device.
  std::uint64_t rows() const { return read().address(); }
  std::uint64_t slices() const { return read().address() + slices_at_; }
  std::uint64_t states(std::uint32_t layer) const {
    return read().address() + states_at_ + layer * limits_.slices * 8;
  }
  std::uint64_t logit_rows() const { return read().address() + logit_rows_at_; }

 private:
  BatchTables() = default;
  const DeviceBuffer& read() const { return host_.is_device_local() ? host_ : device_; }
  Limits limits_;
  std::uint64_t slices_at_ = 0;
  std::uint64_t states_at_ = 0;
  std::uint64_t logit_rows_at_ = 0;
  DeviceBuffer host_;
  DeviceBuffer device_;  // none where the host writes to the device's memory
};

}  // namespace moepack
