// What running a model will take, from options and files' heads, before anything is allocated: the
// same plan whether it is carried out (backend_opening.h) or shown (`moepack plan`).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/device_use.h"
#include "runtime/engine_options.h"
#include "runtime/model/kernels.h"
#include "runtime/model/memory_plan.h"
#include "runtime/vulkan/vulkan_device.h"

namespace moepack {

// On the processor.
struct CpuPlan {
  MemoryRequest request;  // with the chunk that was chosen
  MemoryPlan memory;
  Status verdict;                // ok, or why it is refused
  std::uint64_t cut_tokens = 1;  // Engine::cut_tokens()
  std::uint32_t lookahead = 0;   // experts to read ahead for a token (model/expert_lookahead.h)
};
// kUnsupported: the kernels lack a format, or what is asked for cannot be done with this model.
// Memory that is short is the plan's verdict. Pure but for asking how much memory there is.
Result<CpuPlan> plan_cpu(const EngineOptions& options, const Kernels& kernels, const ModelDir& dir);

// What of a GPU decides a plan.
struct DeviceFacts {
  std::string name;
  std::string driver;
  std::uint32_t subgroup_size = 32;
  bool takes_ordered_programs = true;
  std::uint64_t free_bytes = 0;
  bool shares_memory = false;  // with the machine

  static DeviceFacts of(const VulkanDevice& device);
};
// On a GPU: its memory, and the machine's own beside it.
struct DevicePlan {
  DeviceUse use;
  MemoryPlan host;
  std::uint32_t chunk_tokens = 0;
  std::uint64_t rows = 0;  // tokens of a batch
};
// `use`: of the profile for hot experts, of the layers of `dir`; null without one.
// `must_hold_all`: refuses where not all experts fit. The errors of check_vulkan_support,
// plan_vulkan and plan_memory. Pure but for asking how much memory there is.
Result<DevicePlan> plan_device(const EngineOptions& options, const ModelDir& dir,
                               const DeviceFacts& facts, const LaneUse* use, bool must_hold_all);

// Whether the system shows a GPU at all: asking Vulkan loads every driver there is, which takes
// longer than opening a small model does.
bool may_have_gpu();
// Whether there is a GPU of its own, not a processor that plays one. Asks Vulkan only where the
// system shows some device, because Vulkan loads every driver there is.
bool has_gpu();

struct RunPlan {
  Backend chosen = Backend::kCpu;
  std::string choice;            // with kAuto: which was taken and why
  MemoryPlan memory;             // of the machine
  MemoryRequest request;         // of that; of the processor's backends alone
  std::optional<DeviceUse> use;  // of a GPU
  std::uint64_t chunk_tokens = 0;
  std::uint32_t lookahead = 0;  // of the processor's backends: experts read ahead for a token
  Status verdict;               // ok, or the error with which opening refuses
};
// What Engine::open() would do with `dir`, whose weights need not be there: it may have been made
// from heads alone. options.model is not read. With kVulkan and vram_bytes, where no GPU can be
// opened, it plans for one with so much memory and says so in `choice`. Errors: those that are not
// about memory.
Result<RunPlan> plan_run(const EngineOptions& options, const ModelDir& dir);

// kInvalidArgument where the reference backend is to encode keys and values.
Status check_kv_encoding(const EngineOptions& options);

}  // namespace moepack
