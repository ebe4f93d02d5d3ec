#include "runtime/stage_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/hot_profile.h"
#include "runtime/vulkan/device_experts.h"

namespace moepack {
namespace {

// A device that was named twice gives what it has free in two halves.
std::vector<DeviceFacts> shared_facts(const EngineOptions& options,
                                      std::span<const DeviceFacts> facts) {
  std::vector<DeviceFacts> shared(facts.begin(), facts.end());
  for (std::size_t i = 0; i < shared.size(); ++i) {
    const auto times =
        std::count(options.devices.begin(), options.devices.end(), options.devices[i]);
    shared[i].free_bytes /= static_cast<std::uint64_t>(times);
  }
  return shared;
}

std::vector<double> shares_of(const EngineOptions& options, std::span<const DeviceFacts> facts) {
  if (!options.tensor_split.empty()) return options.tensor_split;
  std::vector<double> shares;
  for (const DeviceFacts& fact : facts) {
    const std::uint64_t budget =
        options.vram_bytes != 0 ? std::min(options.vram_bytes, fact.free_bytes) : fact.free_bytes;
    shares.push_back(static_cast<double>(budget));
  }
  return shares;
}

// The same share of the machine's memory as of the layers.
std::uint64_t part_of(std::uint64_t bytes, const LayerRange& range, std::uint32_t layers) {
  return bytes / layers * range.count();
}

std::uint64_t all_uses(const LaneUse& use) {
  std::uint64_t uses = 0;
  for (const LayerLanes& layer : use.layers) uses += layer.all_uses();
  return uses;
}

EngineOptions stage_options(const EngineOptions& options, std::size_t stage,
                            const LayerRange& range, std::uint32_t layers) {
  EngineOptions own = options;
  own.device = options.devices[stage];
  own.devices.clear();
  own.cache_bytes = part_of(options.cache_bytes, range, layers);
  if (options.hot_experts.has_value()) own.hot_experts = layers_of(*options.hot_experts, range);
  if (options.available_bytes.has_value()) {
    own.available_bytes = part_of(*options.available_bytes, range, layers);
  }
  return own;
}

void add_device(const VulkanPlan& from, VulkanPlan& to) {
  to.resident_bytes += from.resident_bytes;
  to.key_value_bytes += from.key_value_bytes;
  to.recurrent_bytes += from.recurrent_bytes;
  to.scratch_bytes += from.scratch_bytes;
  to.expert_bytes += from.expert_bytes;
  to.all_expert_bytes += from.all_expert_bytes;
  to.expert_floor_bytes += from.expert_floor_bytes;
}

void add_host(const MemoryPlan& from, MemoryPlan& to) {
  to.resident_bytes += from.resident_bytes;
  to.key_value_bytes += from.key_value_bytes;
  to.recurrent_bytes += from.recurrent_bytes;
  to.scratch_bytes += from.scratch_bytes;
  to.list_bytes += from.list_bytes;
  to.saved_bytes += from.saved_bytes;
  to.cache_bytes += from.cache_bytes;
  to.cache_floor_bytes += from.cache_floor_bytes;
  to.pack_bytes += from.pack_bytes;
}

std::string layers_text(const LayerRange& range) {
  return " (layers " + std::to_string(range.first) + " to " + std::to_string(range.end - 1) + ")";
}

HotPlan joined_hot(std::span<const StagePlan> stages) {
  std::vector<HotPart> parts;
  for (const StagePlan& stage : stages) {
    parts.push_back({.plan = stage.plan.use.hot,
                     .layers = stage.layers.count(),
                     .experts = stage.dir.pack.all_experts(),
                     .uses = stage.profile_uses,
                     .holds_all = stage.plan.use.plan.holds_all_experts()});
  }
  return join_hot_plans(parts);
}

}  // namespace

Result<std::vector<StagePlan>> plan_stages(const EngineOptions& options, const ModelDir& dir,
                                           std::span<const DeviceFacts> facts, bool must_hold_all) {
  const std::vector<DeviceFacts> shared = shared_facts(options, facts);
  MOE_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> sizes,
                       layer_sizes(dir, DeviceExperts::slot_bytes(dir.pack)));
  MOE_ASSIGN_OR_RETURN(const std::vector<LayerRange> ranges,
                       split_layers(sizes, shares_of(options, shared)));
  MOE_ASSIGN_OR_RETURN(const std::optional<LaneUse> use, hot_use(options, dir));
  std::vector<StagePlan> stages;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    StagePlan stage{.layers = ranges[i], .dir = {}, .options = {}, .plan = {}};
    MOE_ASSIGN_OR_RETURN(stage.dir, stage_dir(dir, ranges[i]));
    stage.options = stage_options(options, i, ranges[i], dir.config.num_layers);
    std::optional<LaneUse> own_use;
    if (use.has_value()) own_use = layers_of(*use, ranges[i]);
    stage.profile_uses = own_use.has_value() ? all_uses(*own_use) : 0;
    Result<DevicePlan> plan = plan_device(stage.options, stage.dir, shared[i],
                                          own_use.has_value() ? &*own_use : nullptr, must_hold_all);
    if (!plan.is_ok()) {
      return make_error(plan.status().code(), Where{},
                        "device " + std::to_string(options.devices[i]) + layers_text(ranges[i]) +
                            ": " + plan.status().message(),
                        "or give it fewer layers with --tensor-split");
    }
    stage.plan = std::move(plan).value();
    stages.push_back(std::move(stage));
  }
  return stages;
}

DevicePlan joined_plan(std::span<const StagePlan> stages) {
  DevicePlan joined = stages.front().plan;
  joined.use.hot = joined_hot(stages);
  joined.use.name += layers_text(stages.front().layers);
  for (const StagePlan& stage : stages.subspan(1)) {
    const DeviceUse& use = stage.plan.use;
    joined.use.name += ", " + use.name + layers_text(stage.layers);
    if (use.driver != joined.use.driver) joined.use.driver += ", " + use.driver;
    add_device(use.plan, joined.use.plan);
    add_host(stage.plan.host, joined.host);
    if (use.cold == ColdExperts::kCpu) joined.use.cold = use.cold;
    if (joined.use.cold_reason.empty()) joined.use.cold_reason = use.cold_reason;
  }
  return joined;
}

}  // namespace moepack
