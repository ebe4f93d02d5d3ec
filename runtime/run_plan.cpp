#include "runtime/run_plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/base/paths.h"
#include "runtime/batch_schedule.h"
#include "runtime/hot_profile.h"
#include "runtime/model/available_memory.h"
#include "runtime/model/chunk_choice.h"
#include "runtime/model/expert_lookahead.h"
#include "runtime/model/kernel_support.h"
#include "runtime/model/resident_tensors.h"
#include "runtime/option_checks.h"
#include "runtime/stage_plan.h"
#include "runtime/vulkan/cold_lane.h"
#include "runtime/vulkan/device_experts.h"
#include "runtime/vulkan/device_scratch.h"
#include "runtime/vulkan/record_upload.h"
#include "runtime/vulkan/vulkan_support.h"

namespace moepack {
namespace {

// Tokens of a prompt that a GPU computes at once, where nothing else is asked for.
constexpr std::uint32_t kDeviceChunk = 512;

// A saved sequence names the weights that it belongs to by their checksums.
Status check_saves(const EngineOptions& options, const ModelDir& dir) {
  const bool is_known =
      dir.pack.has_checksums &&
      std::all_of(dir.overlays.begin(), dir.overlays.end(),
                  [](const ResidentOverlay& overlay) { return overlay.has_checksum; });
  if (!options.saves_sequence || is_known) return Status::ok();
  return unsupported(Where{.file = dir.pack_path.string()},
                     "experts without checksums cannot be told from others of the same shape, so a "
                     "saved prompt would not know its model",
                     "adopt the model with moepack import, or leave --prompt-cache out");
}

MemoryRequest memory_request(const EngineOptions& options, const StateForm& form) {
  MemoryRequest request{.context = options.context,
                        .chunk_tokens = options.chunk_tokens,
                        .threads = options.threads,
                        .sequences = options.sequences,
                        .form = form,
                        .cache_bytes = options.cache_bytes,
                        .available_bytes = options.available_bytes.has_value()
                                               ? options.available_bytes
                                               : available_memory_bytes(),
                        .saves_sequence = options.saves_sequence,
                        .snapshot_bytes = options.snapshot_bytes,
                        .activations = options.activations};
  MemoryRequest largest = request;
  if (largest.chunk_tokens == 0) largest.chunk_tokens = kAutomaticChunks.front();
  request.batch_bytes = batch_list_bytes(batch_tokens(largest), options.sequences);
  if (options.timeline != nullptr) request.batch_bytes += options.timeline->memory_bytes();
  return request;
}

// Experts to read ahead for a token.
std::uint32_t lookahead_of(const EngineOptions& options, const ModelConfig& config,
                           const MemoryPlan& plan) {
  if (!options.store.is_lookahead_automatic) return options.store.lookahead;
  const bool all_fit = plan.holds_all_experts();
  if (all_fit || options.car.is_on() || !options.store.trace.empty()) return 0;
  return automatic_lookahead(config.experts_per_token);
}

// The machine's own memory beside a device that computes: the residents while they are copied, and
// records on their way.
Result<MemoryPlan> plan_host(const EngineOptions& options, const ModelDir& dir,
                             std::uint32_t chunk_tokens, bool holds_all_experts,
                             bool has_cold_lane) {
  MemoryRequest request =
      memory_request(options, state_form(reference_kernels(), KvEncoding::kFloat32));
  request.on_device = true;
  request.batch_bytes += RecordUpload::host_bytes(DeviceExperts::slot_bytes(dir.pack));
  if (has_cold_lane) {
    request.batch_bytes += cold_lane_bytes(
        dir.config,
        {.rows = kFewRows, .threads = options.threads, .activations = options.activations});
  }
  request.chunk_tokens = chunk_tokens;
  MOE_ASSIGN_OR_RETURN(const MemoryPlan plan,
                       plan_memory(dir.config, resident_memory(dir), dir.pack, request));
  if (!holds_all_experts || options.cache_bytes != 0) return plan;
  request.cache_bytes = plan.cache_floor_bytes;
  return plan_memory(dir.config, resident_memory(dir), dir.pack, request);
}

// How missing experts are computed. The processor must know their formats.
Result<ColdExpertsChoice> cold_experts_of(const EngineOptions& options, const ModelDir& dir,
                                          const DeviceFacts& facts, bool holds_all_experts) {
  if (holds_all_experts) return ColdExpertsChoice{};
  ColdExpertsChoice choice = choose_cold_experts(options.cold_experts, facts.shares_memory);
  if (choice.way != ColdExperts::kCpu) return choice;
  MOE_ASSIGN_OR_RETURN(const Kernels* kernels, backend_kernels(Backend::kCpu, options.cpu_level));
  const Status known = check_kernel_support(*kernels, dir);
  if (known.is_ok()) return choice;
  if (options.cold_experts != ColdExperts::kAuto) return known;
  return ColdExpertsChoice{.way = ColdExperts::kFetch, .reason = known.message()};
}

// The device that is asked for; where there is none but a budget of memory, one that is thought of.
Result<DeviceFacts> device_facts(const EngineOptions& options, std::string& note) {
  const Result<std::unique_ptr<VulkanDevice>> device = VulkanDevice::open(options.vulkan_options());
  if (device.is_ok()) return DeviceFacts::of(*device.value());
  if (options.vram_bytes == 0) return device.status();
  note = "vulkan: as for a GPU with the memory that --vram-mb gives; here " +
         device.status().message();
  return DeviceFacts{
      .name = "a GPU that is not here", .driver = "", .free_bytes = options.vram_bytes};
}

Result<DevicePlan> plan_devices(const EngineOptions& options, const ModelDir& dir,
                                bool must_hold_all) {
  std::vector<DeviceFacts> facts;
  for (const std::uint32_t index : options.devices) {
    VulkanOptions one = options.vulkan_options();
    one.device = index;
    MOE_ASSIGN_OR_RETURN(const std::unique_ptr<VulkanDevice> device, VulkanDevice::open(one));
    facts.push_back(DeviceFacts::of(*device));
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<StagePlan> stages,
                       plan_stages(options, dir, facts, must_hold_all));
  return joined_plan(stages);
}

Status add_device_plan(const EngineOptions& options, const ModelDir& dir, bool must_hold_all,
                       RunPlan& plan) {
  MOE_RETURN_IF_ERROR(check_device_options(options));
  DevicePlan device;
  if (options.devices.size() > 1) {
    MOE_ASSIGN_OR_RETURN(device, plan_devices(options, dir, must_hold_all));
  } else {
    MOE_ASSIGN_OR_RETURN(const DeviceFacts facts, device_facts(options, plan.choice));
    MOE_ASSIGN_OR_RETURN(const std::optional<LaneUse> use, hot_use(options, dir));
    MOE_ASSIGN_OR_RETURN(
        device, plan_device(options, dir, facts, use.has_value() ? &*use : nullptr, must_hold_all));
  }
  plan.chosen = Backend::kVulkan;
  plan.memory = device.host;
  plan.use = std::move(device.use);
  plan.chunk_tokens = device.chunk_tokens;
  return Status::ok();
}

Status add_cpu_plan(const EngineOptions& options, const ModelDir& dir, RunPlan& plan) {
  MOE_RETURN_IF_ERROR(check_cpu_options(options, dir.config));
  MOE_RETURN_IF_ERROR(check_unused_profile(options, dir));
  MOE_ASSIGN_OR_RETURN(const Kernels* kernels, backend_kernels(options.backend, options.cpu_level));
  MOE_ASSIGN_OR_RETURN(CpuPlan cpu, plan_cpu(options, *kernels, dir));
  plan.chosen = options.backend == Backend::kAuto ? Backend::kCpu : options.backend;
  plan.memory = cpu.memory;
  plan.request = cpu.request;
  plan.chunk_tokens = cpu.request.chunk_tokens;
  plan.lookahead = cpu.lookahead;
  plan.verdict = cpu.verdict;
  return Status::ok();
}

}  // namespace

Status check_kv_encoding(const EngineOptions& options) {
  if (options.backend != Backend::kReference || options.kv_encoding == KvEncoding::kFloat32) {
    return Status::ok();
  }
  return invalid_argument("the reference backend keeps keys and values in f32, not in " +
                              std::string(kv_encoding_name(options.kv_encoding)),
                          "give --kv-cache-type f32, or another --backend");
}

DeviceFacts DeviceFacts::of(const VulkanDevice& device) {
  return {.name = device.info().name,
          .driver = device.info().driver,
          .subgroup_size = device.info().subgroup_size,
          .takes_ordered_programs = device.takes_ordered_programs(),
          .free_bytes = device.free_bytes(),
          .shares_memory = device.info().type == VulkanDeviceType::kIntegrated ||
                           device.info().type == VulkanDeviceType::kCpu};
}

Result<CpuPlan> plan_cpu(const EngineOptions& options, const Kernels& kernels,
                         const ModelDir& dir) {
  MOE_RETURN_IF_ERROR(check_kernel_support(kernels, dir));
  MOE_RETURN_IF_ERROR(check_saves(options, dir));
  CpuPlan plan;
  plan.request = memory_request(options, state_form(kernels, options.kv_encoding));
  const bool any_cut = is_batch_invariant(kernels, options.activations, dir);
  // A prompt is saved where it may be cut: at chunks, which must not change with free memory.
  if (options.saves_sequence && !any_cut && plan.request.chunk_tokens == 0) {
    plan.request.chunk_tokens = kMostCachedChunk;
  }
  MemoryJudgement judgement =
      judge_memory(dir.config, resident_memory(dir), dir.pack, plan.request);
  plan.memory = judgement.plan;
  plan.verdict = std::move(judgement.verdict);
  plan.request.chunk_tokens = plan.memory.chunk_tokens;
  plan.cut_tokens = any_cut ? 1 : plan.request.chunk_tokens;
  plan.lookahead = lookahead_of(options, dir.config, plan.memory);
  return plan;
}

Result<DevicePlan> plan_device(const EngineOptions& options, const ModelDir& dir,
                               const DeviceFacts& facts, const LaneUse* use, bool must_hold_all) {
  MOE_RETURN_IF_ERROR(check_vulkan_support(dir, options.kv_encoding));
  MOE_RETURN_IF_ERROR(check_saves(options, dir));
  DevicePlan plan;
  plan.chunk_tokens = options.chunk_tokens != 0 ? options.chunk_tokens : kDeviceChunk;
  plan.rows = std::min<std::uint64_t>(plan.chunk_tokens,
                                      options.sequences * std::uint64_t{options.context});
  MOE_ASSIGN_OR_RETURN(const VulkanPlan device,
                       plan_vulkan(dir.config, dir.pack,
                                   {.context = options.context,
                                    .sequences = options.sequences,
                                    .rows = plan.rows,
                                    .subgroup_size = facts.subgroup_size,
                                    .hands_on = facts.takes_ordered_programs,
                                    .kv_encoding = options.kv_encoding,
                                    .resident_bytes = resident_memory(dir),
                                    .free_bytes = facts.free_bytes,
                                    .budget = options.vram_bytes}));
  if (must_hold_all && !device.holds_all_experts()) {
    return invalid_argument(facts.name + " has no room for all experts");
  }
  MOE_ASSIGN_OR_RETURN(const ColdExpertsChoice cold,
                       cold_experts_of(options, dir, facts, device.holds_all_experts()));
  plan.use = {.name = facts.name,
              .driver = facts.driver,
              .plan = device,
              .cold = cold.way,
              .cold_reason = cold.reason,
              .hot = {}};
  plan.use.hot = plan_device_hot(options.hot.weighting, dir, use, device.expert_bytes,
                                 device.holds_all_experts(), cold.way);
  MOE_ASSIGN_OR_RETURN(plan.host,
                       plan_host(options, dir, plan.chunk_tokens, device.holds_all_experts(),
                                 cold.way == ColdExperts::kCpu));
  return plan;
}

bool may_have_gpu() {
#ifdef __linux__
  constexpr std::array<const char*, 4> kNodes{"/dev/dri", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"};
  return std::any_of(kNodes.begin(), kNodes.end(), [](const char* node) { return is_there(node); });
#else
  return true;
#endif
}

bool has_gpu() {
  if (!may_have_gpu()) return false;
  const Result<std::vector<VulkanDeviceInfo>> devices = list_vulkan_devices();
  if (!devices.is_ok()) return false;
  return std::any_of(devices.value().begin(), devices.value().end(),
                     [](const VulkanDeviceInfo& device) {
                       return device.lacks.empty() && device.type != VulkanDeviceType::kCpu;
                     });
}

Result<RunPlan> plan_run(const EngineOptions& options, const ModelDir& dir) {
  MOE_RETURN_IF_ERROR(check_kv_encoding(options));
  MOE_RETURN_IF_ERROR(check_hot_options(options));
  if (options.threads == 0) return invalid_argument("threads must be at least 1");
  RunPlan plan;
  if (options.backend == Backend::kVulkan) {
    MOE_RETURN_IF_ERROR(add_device_plan(options, dir, false, plan));
    return plan;
  }
  std::string reason = "no GPU that Vulkan can use";
  if (options.backend == Backend::kAuto && has_gpu()) {
    const Status status = add_device_plan(options, dir, true, plan);
    if (status.is_ok()) {
      plan.choice = "vulkan: " + plan.use->name + " has room for the whole model";
      return plan;
    }
    reason = status.message();
    plan = {};
  }
  MOE_RETURN_IF_ERROR(add_cpu_plan(options, dir, plan));
  if (options.backend == Backend::kAuto) plan.choice = "cpu: " + reason;
  return plan;
}

}  // namespace moepack
