#include "runtime/vulkan/vulkan_plan.h"

#include <algorithm>
#include <string>

#include "runtime/vulkan/attention_widths.h"
#include "runtime/vulkan/device_experts.h"
#include "runtime/vulkan/device_scratch.h"
#include "runtime/vulkan/vulkan_state.h"

namespace moepack {
namespace {

// What the arenas may leave unused at the ends of their allocations, and the tables of experts.
constexpr std::uint64_t kSlack = std::uint64_t{160} << 20;
// Of free memory, left to the driver and to others; of a small device a quarter.
constexpr std::uint64_t kReserve = std::uint64_t{1} << 30;
constexpr std::uint64_t kReserveDivisor = 4;

// The device has the memory of the residents for each tensor rounded up, besides.
std::uint64_t slack_of(std::uint64_t resident_bytes) {
  return std::min(kSlack, resident_bytes + (std::uint64_t{1} << 20));
}

std::string bytes_of(const char* name, std::uint64_t bytes) {
  return std::string(name) + " " + std::to_string(bytes);
}

Status does_not_fit(const VulkanPlan& plan, std::uint64_t available) {
  return invalid_argument(
      "the run takes " + std::to_string(plan.fixed_bytes() + plan.expert_floor_bytes) +
          " bytes of device memory (" + bytes_of("residents", plan.resident_bytes) + ", " +
          bytes_of("keys and values", plan.key_value_bytes) + ", " +
          bytes_of("recurrent states", plan.recurrent_bytes) + ", " +
          bytes_of("scratch", plan.scratch_bytes) + ", " +
          bytes_of("experts of one token", plan.expert_floor_bytes) + "), " +
          std::to_string(available) + " are available",
      "raise --vram-mb if the device has more, lower -c or --chunk, or use --backend cpu");
}

}  // namespace

std::uint32_t attend_splits(const ModelConfig& config, std::uint32_t subgroup_size,
                            std::uint64_t context) {
  if (config.num_heads == 0) return 1;
  if (config.kv_rank != 0) return latent_splits(config.num_heads, context);
  std::uint32_t most = 1;
  for (const HeadSizes& heads : attention_heads(config)) {
    most = std::max(most, attend_shape(heads, subgroup_size, context).splits);
  }
  return most;
}

Result<VulkanPlan> plan_vulkan(const ModelConfig& config, const PackManifest& pack,
                               const VulkanRequest& request) {
  VulkanPlan plan;
  plan.resident_bytes = request.resident_bytes + slack_of(request.resident_bytes);
  const VulkanStateShape shape{
      .config = config, .context = request.context, .kv_encoding = request.kv_encoding};
  plan.key_value_bytes = vulkan_key_value_bytes(shape) * request.sequences;
  plan.recurrent_bytes = vulkan_state_bytes(shape) * request.sequences - plan.key_value_bytes;
  plan.scratch_bytes = scratch_bytes(
      config, {.rows = request.rows,
               .slices = request.sequences,
               .shared_width = config.shared_expert_width,
               .splits = attend_splits(config, request.subgroup_size, request.context),
               .hands_on = request.hands_on});
  plan.all_expert_bytes = DeviceExperts::all_bytes(pack);
  plan.expert_floor_bytes = DeviceExperts::slot_bytes(pack) * config.experts_per_token;
  const std::uint64_t available =
      request.budget != 0
          ? std::min(request.budget, request.free_bytes)
          : request.free_bytes - std::min(kReserve, request.free_bytes / kReserveDivisor);
  const std::uint64_t fixed = plan.fixed_bytes();
  if (fixed + plan.expert_floor_bytes > available) return does_not_fit(plan, available);
  plan.expert_bytes = std::min(plan.all_expert_bytes, available - fixed);
  return plan;
}

}  // namespace moepack
