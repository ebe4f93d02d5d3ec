#include "runtime/backend_opening.h"

#include <algorithm>
#include <string>
#include <utility>

#include "formats/base/paths.h"
#include "runtime/hot_profile.h"
#include "runtime/model/available_memory.h"
#include "runtime/model/cpu_forward.h"
#include "runtime/model/expert_lookahead.h"
#include "runtime/model/kernel_support.h"
#include "runtime/model/model_fingerprint.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/routing_recorder.h"
#include "runtime/option_checks.h"
#include "runtime/run_plan.h"
#include "runtime/stage_plan.h"
#include "runtime/store/cache_policy.h"
#include "runtime/store/kept_records.h"
#include "runtime/vulkan/device_pipeline.h"
#include "runtime/vulkan/device_scratch.h"
#include "runtime/vulkan/vulkan_forward.h"
#include "runtime/vulkan/vulkan_support.h"

namespace moepack {
namespace {

// What does not depend on where the model is computed.
struct LoadedModel {
  ModelWeights weights;
  std::unique_ptr<ExpertStore> store;
};

// A profile's experts are kept in what the cache has beyond the experts of one token.
Result<ExpertStoreOptions> store_options(const EngineOptions& options, const ModelDir& dir,
                                         const MemoryPlan& plan, std::uint32_t lookahead) {
  ExpertStoreOptions store{.cache_bytes = plan.cache_bytes,
                           .policy = options.store.policy,
                           .ahead_experts = most_ahead(lookahead),
                           .timeline = options.timeline};
  store.token_uses = uses_per_token(dir.pack.expert_layers(), dir.config.experts_per_token);
  if (options.store.pinned.empty()) return store;
  MOE_ASSIGN_OR_RETURN(store.kept, read_kept_records(
                                       options.store.pinned, profiled_model(options, dir),
                                       [&](std::uint32_t layer, std::uint32_t expert) {
                                         return expert < dir.pack.experts_of(layer)
                                                    ? dir.pack.layout_of(layer, expert).record_bytes
                                                    : 0;
                                       },
                                       plan.cache_bytes - plan.cache_floor_bytes));
  return store;
}

// Null without --trace.
Result<std::unique_ptr<RoutingRecorder>> make_recorder(const EngineOptions& options,
                                                       const ModelDir& dir,
                                                       std::uint64_t fingerprint) {
  if (options.store.trace.empty()) return std::unique_ptr<RoutingRecorder>();
  return RoutingRecorder::create(
      options.store.trace,
      trace_model(directory_name(options.model), fingerprint, dir.config, dir.pack));
}

// What is free beside everything that the plan counts.
std::optional<std::uint64_t> spare_bytes(const EngineOptions& options, const MemoryPlan& plan) {
  const std::optional<std::uint64_t> available =
      options.available_bytes.has_value() ? options.available_bytes : available_memory_bytes();
  if (!available.has_value()) return std::nullopt;
  return *available > plan.total_bytes() ? *available - plan.total_bytes() : 0;
}

// Before residents are loaded: what they take is part of the plan.
Status choose_reading(const EngineOptions& options, const ModelDir& dir, OpenedBackend& opened) {
  MOE_ASSIGN_OR_RETURN(opened.files,
                       find_pack_files(dir.pack_path, dir.pack, options.store.pack_directories));
  MOE_ASSIGN_OR_RETURN(opened.io, choose_io({.options = options.store,
                                             .manifest = dir.pack,
                                             .files = opened.files,
                                             .spare_bytes = spare_bytes(options, opened.plan)}));
  return Status::ok();
}

Result<std::unique_ptr<ExpertStore>> open_store(const EngineOptions& options, const ModelDir& dir,
                                                const OpenedBackend& opened) {
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> reader,
                       open_record_reader({.options = options.store,
                                           .manifest = dir.pack,
                                           .files = opened.files,
                                           .spare_bytes = {}},
                                          opened.io));
  MOE_ASSIGN_OR_RETURN(const ExpertStoreOptions store,
                       store_options(options, dir, opened.plan, opened.lookahead));
  return ExpertStore::open_with(std::move(reader),
                                make_policy(store.policy, store.token_uses, store.kept.keys),
                                dir.pack_path, dir.pack, store);
}

void describe_model(const EngineOptions& options, const ModelDir& dir, const ModelWeights& weights,
                    OpenedBackend& opened) {
  opened.fingerprint = model_fingerprint(dir, weights);
  opened.config = dir.config;
  opened.profiled = profiled_model(options, dir);
  opened.size = model_size(dir.config, weights, dir.pack);
  opened.layer_file = opened.files.first();
}

// Loads what the plan has room for, and notes down what it is.
Result<LoadedModel> load_model(const EngineOptions& options, const ModelDir& dir,
                               OpenedBackend& opened) {
  LoadedModel loaded;
  MOE_RETURN_IF_ERROR(choose_reading(options, dir, opened));
  MOE_ASSIGN_OR_RETURN(loaded.weights, load_model_weights(dir, options.threads));
  describe_model(options, dir, loaded.weights, opened);
  MOE_ASSIGN_OR_RETURN(loaded.store, open_store(options, dir, opened));
  return loaded;
}

Result<OpenedBackend> open_cpu(const EngineOptions& options, const SelectedModel& selected) {
  const ModelDir& dir = selected.dir;
  MOE_RETURN_IF_ERROR(check_cpu_options(options, dir.config));
  MOE_RETURN_IF_ERROR(check_unused_profile(options, dir));
  MOE_ASSIGN_OR_RETURN(const CpuPlan plan, plan_cpu(options, *selected.kernels, dir));
  MOE_RETURN_IF_ERROR(plan.verdict);
  OpenedBackend opened;
  opened.chosen = options.backend == Backend::kAuto ? Backend::kCpu : options.backend;
  opened.plan = plan.memory;
  opened.lookahead = plan.lookahead;
  opened.chunk_tokens = static_cast<std::uint32_t>(plan.request.chunk_tokens);
  opened.cut_tokens = plan.cut_tokens;
  opened.decode_rows = opened.cut_tokens == 1 ? opened.chunk_tokens : kFewTokens;
  const ActivationLimits limits{.tokens = batch_tokens(plan.request),
                                .threads = options.threads,
                                .context = options.context,
                                .activations = options.activations};
  MOE_ASSIGN_OR_RETURN(LoadedModel loaded, load_model(options, dir, opened));
  CpuForwardExtras extras{.recorder = nullptr,
                          .car = options.car,
                          .lookahead = opened.lookahead,
                          .is_lookahead_tried = options.store.is_lookahead_automatic};
  MOE_ASSIGN_OR_RETURN(extras.recorder, make_recorder(options, dir, opened.fingerprint));
  MOE_ASSIGN_OR_RETURN(
      opened.backend,
      make_cpu_forward(dir.config, std::move(loaded.weights), std::move(loaded.store),
                       *selected.kernels, limits, options.kv_encoding, std::move(extras)));
  return opened;
}

Result<ColdLaneUse> cold_lane_use(const EngineOptions& options, const HotPlan& hot) {
  MOE_ASSIGN_OR_RETURN(const Kernels* kernels, backend_kernels(Backend::kCpu, options.cpu_level));
  return ColdLaneUse{.kernels = kernels,
                     .threads = options.threads,
                     .activations = options.activations,
                     .hot = options.hot_experts.has_value() ? options.hot_experts : hot.set,
                     .counts = options.hot.is_counting()};
}

// What a forward pass on a device is opened with.
Result<VulkanForwardOptions> forward_options(const EngineOptions& options, const DevicePlan& plan) {
  VulkanForwardOptions forward{.context = options.context,
                               .sequences = options.sequences,
                               .rows = plan.rows,
                               .kv_encoding = options.kv_encoding,
                               .is_exact = options.activations == ActivationType::kFloat32,
                               .pipeline_file = options.pipeline_file,
                               .plan = plan.use.plan,
                               .threads = options.threads};
  if (plan.use.cold == ColdExperts::kCpu) {
    MOE_ASSIGN_OR_RETURN(forward.cold, cold_lane_use(options, plan.use.hot));
  }
  return forward;
}

// One stage, with a store of its own for the experts of its layers.
Result<std::unique_ptr<VulkanBackend>> open_stage(const StagePlan& stage,
                                                  std::unique_ptr<VulkanDevice> device,
                                                  const ModelWeights& whole, bool is_last,
                                                  const std::shared_ptr<StageTimes>& times) {
  OpenedBackend part;
  part.plan = stage.plan.host;
  MOE_RETURN_IF_ERROR(choose_reading(stage.options, stage.dir, part));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<ExpertStore> store,
                       open_store(stage.options, stage.dir, part));
  MOE_ASSIGN_OR_RETURN(VulkanForwardOptions forward, forward_options(stage.options, stage.plan));
  forward.place = {
      .first_layer = stage.layers.first, .is_first = stage.layers.first == 0, .is_last = is_last};
  forward.times = times;
  return make_vulkan_forward(std::move(device), stage.dir.config,
                             stage_weights(whole, stage.layers), stage.dir.pack, std::move(store),
                             forward);
}

// The layers shared by several devices.
Result<OpenedBackend> open_devices(const EngineOptions& options, const ModelDir& dir,
                                   bool must_hold_all) {
  MOE_RETURN_IF_ERROR(check_vulkan_support(dir, options.kv_encoding));
  MOE_RETURN_IF_ERROR(check_device_options(options));
  std::vector<std::unique_ptr<VulkanDevice>> devices;
  std::vector<DeviceFacts> facts;
  for (const std::uint32_t index : options.devices) {
    VulkanOptions one = options.vulkan_options();
    one.device = index;
    MOE_ASSIGN_OR_RETURN(std::unique_ptr<VulkanDevice> device, VulkanDevice::open(one));
    facts.push_back(DeviceFacts::of(*device));
    devices.push_back(std::move(device));
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<StagePlan> stages,
                       plan_stages(options, dir, facts, must_hold_all));
  const DevicePlan joined = joined_plan(stages);
  OpenedBackend opened;
  opened.chosen = Backend::kVulkan;
  opened.chunk_tokens = joined.chunk_tokens;
  opened.cut_tokens = opened.chunk_tokens;
  opened.decode_rows = joined.use.cold == ColdExperts::kCpu
                           ? std::min<std::uint64_t>(kFewRows, kFewTokens)
                           : kFewRows;
  opened.plan = joined.host;
  opened.device = joined.use;
  MOE_RETURN_IF_ERROR(choose_reading(options, dir, opened));
  MOE_ASSIGN_OR_RETURN(const ModelWeights weights, load_model_weights(dir, options.threads));
  describe_model(options, dir, weights, opened);
  const auto times = std::make_shared<StageTimes>();
  std::vector<std::unique_ptr<VulkanBackend>> parts;
  std::vector<LayerRange> ranges;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    MOE_ASSIGN_OR_RETURN(
        std::unique_ptr<VulkanBackend> part,
        open_stage(stages[i], std::move(devices[i]), weights, i + 1 == stages.size(), times));
    parts.push_back(std::move(part));
    ranges.push_back(stages[i].layers);
  }
  opened.backend = make_device_pipeline(std::move(parts), std::move(ranges), times);
  return opened;
}

// `must_hold_all`: refuses, before anything is loaded, where not all experts fit.
Result<OpenedBackend> open_vulkan(const EngineOptions& options, const ModelDir& dir,
                                  bool must_hold_all) {
  if (options.devices.size() > 1) return open_devices(options, dir, must_hold_all);
  MOE_RETURN_IF_ERROR(check_vulkan_support(dir, options.kv_encoding));
  MOE_RETURN_IF_ERROR(check_device_options(options));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<VulkanDevice> device,
                       VulkanDevice::open(options.vulkan_options()));
  MOE_ASSIGN_OR_RETURN(const std::optional<LaneUse> use, hot_use(options, dir));
  MOE_ASSIGN_OR_RETURN(const DevicePlan plan,
                       plan_device(options, dir, DeviceFacts::of(*device),
                                   use.has_value() ? &*use : nullptr, must_hold_all));
  OpenedBackend opened;
  opened.chosen = Backend::kVulkan;
  opened.chunk_tokens = plan.chunk_tokens;
  opened.cut_tokens = opened.chunk_tokens;
  opened.decode_rows = kFewRows;
  opened.plan = plan.host;
  opened.device = plan.use;
  // The regime of few rows of the processor's products ends before the device's.
  if (opened.device->cold == ColdExperts::kCpu) {
    opened.decode_rows = std::min<std::uint64_t>(kFewRows, kFewTokens);
  }
  MOE_ASSIGN_OR_RETURN(LoadedModel loaded, load_model(options, dir, opened));
  MOE_ASSIGN_OR_RETURN(const VulkanForwardOptions forward, forward_options(options, plan));
  MOE_ASSIGN_OR_RETURN(opened.backend,
                       make_vulkan_forward(std::move(device), dir.config, loaded.weights, dir.pack,
                                           std::move(loaded.store), forward));
  return opened;
}

Result<OpenedBackend> open_auto(const EngineOptions& options, const SelectedModel& selected) {
  std::string reason = "no GPU that Vulkan can use";
  if (has_gpu()) {
    Result<OpenedBackend> on_device = open_vulkan(options, selected.dir, true);
    if (on_device.is_ok()) {
      on_device.value().choice =
          "vulkan: " + on_device.value().device->name + " has room for the whole model";
      return on_device;
    }
    reason = on_device.status().message();
  }
  MOE_ASSIGN_OR_RETURN(OpenedBackend opened, open_cpu(options, selected));
  opened.choice = "cpu: " + reason;
  return opened;
}

}  // namespace

Result<OpenedBackend> open_backend(const EngineOptions& options) {
  MOE_RETURN_IF_ERROR(check_kv_encoding(options));
  MOE_RETURN_IF_ERROR(check_hot_options(options));
  if (options.backend == Backend::kVulkan) {
    MOE_ASSIGN_OR_RETURN(const ModelDir dir,
                         open_model_dir(options.model, options.pack, options.overlays,
                                        options.store.pack_directories));
    return open_vulkan(options, dir, false);
  }
  MOE_ASSIGN_OR_RETURN(const SelectedModel selected,
                       open_selected_model(options, options.store.pack_directories));
  if (options.backend == Backend::kAuto) return open_auto(options, selected);
  return open_cpu(options, selected);
}

}  // namespace moepack
