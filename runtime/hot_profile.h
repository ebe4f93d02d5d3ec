// The profile of expert use that --hot-profile names, or that came over HTTP, for the model it is
// applied to.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/engine_options.h"
#include "runtime/placement/hot_plan.h"
#include "runtime/placement/lane_use.h"
#include "runtime/store/kept_records.h"

namespace moepack {

class Engine;

// What a profile must agree with.
ProfiledModel profiled_model(const EngineOptions& options, const ModelDir& dir);
// [num_layers]: routed experts of each layer.
std::vector<std::uint32_t> routed_experts(const PackManifest& pack);

// The uses of options.hot.profile. Errors name the file: kInvalidArgument for a profile of another
// model, kCorrupt for a damaged one, kUnsupported for one of ranks without counts.
Result<LaneUse> read_hot_use(const EngineOptions& options, const ModelDir& dir);
// The same of JSON text; `name` stands for the file in errors.
Result<LaneUse> parse_hot_use(std::string_view json, const std::string& name,
                              const ProfiledModel& model);

// The same where a profile is given; nullopt where none is.
Result<std::optional<LaneUse>> hot_use(const EngineOptions& options, const ModelDir& dir);

// How the hot slots of a device are used: `expert_bytes` of it are for experts, which `cold` says
// who computes where they are missing. `use`: of the layers of `dir`; null without a profile.
HotPlan plan_device_hot(SlotWeighting weighting, const ModelDir& dir, const LaneUse* use,
                        std::uint64_t expert_bytes, bool holds_all, ColdExperts cold);

// Engine::lane_use() as lane_report_text(), or that nothing is counted.
std::string engine_lane_report(const Engine& engine);
// The errors of read_hot_use() where a backend without hot experts computes.
Status check_unused_profile(const EngineOptions& options, const ModelDir& dir);

}  // namespace moepack
