#include "runtime/hot_profile.h"

#include <algorithm>
#include <utility>

#include "formats/base/paths.h"
#include "formats/calibration/foreign_profile.h"
#include "runtime/engine.h"
#include "runtime/placement/lane_report.h"
#include "runtime/vulkan/device_experts.h"

namespace moepack {
namespace {

Result<LaneUse> uses_of(const ExpertProfile& profile, const std::string& file) {
  Result<LaneUse> use = lane_use_of(profile);
  if (use.is_ok()) return use;
  return make_error(use.status().code(), Where{.file = file}, use.status().message());
}

}  // namespace

ProfiledModel profiled_model(const EngineOptions& options, const ModelDir& dir) {
  return {.name = directory_name(options.model),
          .source_fingerprint = dir.pack.source.fingerprint,
          .shape = {dir.pack.num_layers, dir.pack.num_experts},
          .experts_per_token = dir.config.experts_per_token};
}

std::vector<std::uint32_t> routed_experts(const PackManifest& pack) {
  std::vector<std::uint32_t> experts(pack.num_layers);
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) experts[l] = pack.experts_of(l);
  return experts;
}

Result<LaneUse> read_hot_use(const EngineOptions& options, const ModelDir& dir) {
  MOE_ASSIGN_OR_RETURN(const ExpertProfile profile,
                       read_model_profile(options.hot.profile, profiled_model(options, dir)));
  return uses_of(profile, options.hot.profile.string());
}

Result<LaneUse> parse_hot_use(std::string_view json, const std::string& name,
                              const ProfiledModel& model) {
  MOE_ASSIGN_OR_RETURN(const ProfileInput input, parse_profile_json(json, name, model.shape));
  MOE_RETURN_IF_ERROR(check_profiled_model(input.profile, model, name));
  return uses_of(input.profile, name);
}

Result<std::optional<LaneUse>> hot_use(const EngineOptions& options, const ModelDir& dir) {
  if (options.hot.profile.empty()) return std::optional<LaneUse>();
  MOE_ASSIGN_OR_RETURN(LaneUse use, read_hot_use(options, dir));
  return std::optional<LaneUse>(std::move(use));
}

HotPlan plan_device_hot(SlotWeighting weighting, const ModelDir& dir, const LaneUse* use,
                        std::uint64_t expert_bytes, bool holds_all, ColdExperts cold) {
  HotPlan plan;
  if (!holds_all && cold == ColdExperts::kCpu) {
    const std::uint64_t slots =
        std::min(expert_bytes / DeviceExperts::slot_bytes(dir.pack), dir.pack.all_experts());
    plan.slots = share_slots(slots, dir.config.experts_per_token).hot;
    if (use == nullptr) return plan;
    return plan_hot_experts(*use, weighting, routed_experts(dir.pack), plan.slots);
  }
  if (use == nullptr) return plan;
  plan.reason = holds_all ? "all experts are on the GPU" : "the GPU fetches what it does not have";
  return plan;
}

std::string engine_lane_report(const Engine& engine) {
  const std::optional<LaneUse> use = engine.lane_use();
  return use.has_value() ? lane_report_text(*use) : no_lane_report_text();
}

Status check_unused_profile(const EngineOptions& options, const ModelDir& dir) {
  return hot_use(options, dir).status();
}

}  // namespace moepack
