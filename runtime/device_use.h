// The device that computes a model, when that is not the processor, and what it takes of it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/model/cold_experts.h"
#include "runtime/placement/hot_plan.h"
#include "runtime/vulkan/vulkan_plan.h"

namespace moepack {

struct DeviceUse {
  std::string name;    // as the device calls itself
  std::string driver;  // its name and version
  VulkanPlan plan;
  ColdExperts cold = ColdExperts::kFetch;  // kFetch or kCpu, where not all experts fit
  std::string cold_reason;                 // with --cold-experts auto: why
  HotPlan hot;                             // with kCpu: what is kept on the device
};

}  // namespace moepack
