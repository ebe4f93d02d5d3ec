// What a run over several devices takes: which layers lie where, and a plan for each device.
#pragma once

#include <span>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine_options.h"
#include "runtime/run_plan.h"
#include "runtime/stage_model.h"

namespace moepack {

struct StagePlan {
  LayerRange layers;
  ModelDir dir;           // of these layers alone (stage_dir())
  EngineOptions options;  // with this device, and its part of the machine's memory
  DevicePlan plan;
  std::uint64_t profile_uses = 0;  // of these layers, with a profile for hot experts
};

// `facts`: of options.devices, in their order; a device that stands there twice has its free memory
// once. A profile's uses, and a set of hot experts, are divided as the layers are. Layers are
// shared by options.tensor_split, or else by the memory that each device may give (vram_bytes is
// for each). Errors of split_layers() and, with the device's number, of plan_device().
Result<std::vector<StagePlan>> plan_stages(const EngineOptions& options, const ModelDir& dir,
                                           std::span<const DeviceFacts> facts, bool must_hold_all);

// All of it as of one device and one memory: names with their layers, sums of bytes.
DevicePlan joined_plan(std::span<const StagePlan> stages);

}  // namespace moepack
