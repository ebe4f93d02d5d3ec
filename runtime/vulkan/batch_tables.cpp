#include "runtime/vulkan/batch_tables.h"

#include <cstring>
#include <utility>

#include "runtime/vulkan/vulkan_state.h"
#include "shaders/shared_types.h"

namespace moepack {
namespace {

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

Result<BatchTables> BatchTables::create(VulkanDevice& device, const Limits& limits) {
  BatchTables tables;
  tables.limits_ = limits;
  tables.slices_at_ = aligned(limits.rows * sizeof(shader::BatchRow));
  tables.states_at_ = tables.slices_at_ + aligned(limits.slices * sizeof(shader::BatchSlice));
  tables.logit_rows_at_ = tables.states_at_ + aligned(limits.layers * limits.slices * 8);
  const std::uint64_t bytes = tables.logit_rows_at_ + aligned(limits.logit_rows * 4);
  MOE_ASSIGN_OR_RETURN(tables.host_, device.allocate(bytes, MemoryKind::kUpload));
  if (!tables.host_.is_device_local()) {
    MOE_ASSIGN_OR_RETURN(tables.device_, device.allocate(bytes, MemoryKind::kDevice));
  }
  std::memset(tables.host_.mapped(), 0, bytes);
  return tables;
}

void BatchTables::write(std::span<const std::int32_t> tokens, std::span<const BatchSlice> slices) {
  auto* rows = reinterpret_cast<shader::BatchRow*>(host_.mapped());
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    rows[t] = {
        .token = static_cast<std::uint32_t>(tokens[t]), .position = 0, .slice = 0, .live = 0};
  }
  for (std::uint32_t s = 0; s < slices.size(); ++s) {
    const BatchSlice& slice = slices[s];
    const auto first = static_cast<std::uint32_t>(slice.first);
    const auto count = static_cast<std::uint32_t>(slice.count);
    const auto position = static_cast<std::uint32_t>(slice.position);
    const std::uint32_t live = slice.status.is_ok() ? 1 : 0;
    const shader::BatchSlice row{first, count, position, live};
    std::memcpy(host_.mapped() + slices_at_ + s * sizeof(row), &row, sizeof(row));
    for (std::uint32_t t = 0; t < count; ++t) {
      rows[first + t].position = position + t;
      rows[first + t].slice = s;
      rows[first + t].live = live;
    }
    const auto& state = static_cast<const VulkanState&>(*slice.state);
    for (std::uint32_t layer = 0; layer < limits_.layers; ++layer) {
      const std::uint64_t address = state.address(layer);
      std::memcpy(host_.mapped() + states_at_ + (layer * limits_.slices + s) * 8, &address, 8);
    }
  }
}

void BatchTables::write_logit_rows(std::span<const std::size_t> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<std::uint32_t>(rows[i]);
    std::memcpy(host_.mapped() + logit_rows_at_ + i * 4, &row, 4);
  }
}

void BatchTables::record_copy(CommandList& list) const {
  if (host_.is_device_local()) return;
  list.copy(host_.handle(), 0, device_.handle(), 0, host_.size());
  list.full_barrier();
}

}  // namespace moepack
