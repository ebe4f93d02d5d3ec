#include "runtime/backend_opening.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "formats/base/paths.h"
#include "runtime/batch_schedule.h"
#include "runtime/model/available_memory.h"
#include "runtime/model/chunk_choice.h"
#include "runtime/model/cpu_forward.h"
#include "runtime/model/kernel_support.h"
#include "runtime/model/model_fingerprint.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/resident_tensors.h"
#include "runtime/model/routing_recorder.h"
#include "runtime/store/kept_records.h"
#include "runtime/vulkan/vulkan_forward.h"

namespace moepack {
namespace {

// Tokens of a prompt that a GPU computes at once, where nothing else is asked for.
constexpr std::uint32_t kDeviceChunk = 512;

Status check_kv_encoding(const EngineOptions& options) {
  if (options.backend != Backend::kReference || options.kv_encoding == KvEncoding::kFloat32) {
    return Status::ok();
  }
  return invalid_argument("the reference backend keeps keys and values in f32, not in " +
                              std::string(kv_encoding_name(options.kv_encoding)),
                          "give --kv-cache-type f32, or another --backend");
}

// Cache-aware routing is the cpu backend's, and its states are nobody else's.
Status check_car(const EngineOptions& options, const ModelConfig& config) {
  if (!options.car.is_on()) return Status::ok();
  const std::uint32_t top_k = config.experts_per_token;
  if (options.backend == Backend::kReference) {
    return unsupported(Where{}, "the reference backend routes exactly (--car)",
                       "give --backend cpu, or leave --car out");
  }
  if (options.saves_sequence) {
    return unsupported(Where{},
                       "a prompt that was computed with --car is not the model's, and its state "
                       "is not saved",
                       "leave --car or --prompt-cache out");
  }
  if (options.car.always <= top_k && top_k <= options.car.among &&
      options.car.among <= config.num_experts) {
    return Status::ok();
  }
  return invalid_argument("--car " + std::to_string(options.car.always) + "," +
                              std::to_string(options.car.among) + " does not fit a model of " +
                              std::to_string(config.num_experts) + " experts, " +
                              std::to_string(top_k) + " a token",
                          "give J,M with J <= " + std::to_string(top_k) +
                              " <= M <= " + std::to_string(config.num_experts));
}

// Of the vulkan backend.
Status check_recorded(const EngineOptions& options) {
  if (options.car.is_on()) {
    return unsupported(Where{}, "the vulkan backend routes exactly (--car)",
                       "give --backend cpu, or leave --car out");
  }
  if (options.store.trace.empty()) return Status::ok();
  return unsupported(Where{}, "the vulkan backend does not tell which experts it chose (--trace)",
                     "give --backend cpu, or leave --trace out");
}

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
                        .available_bytes = available_memory_bytes(),
                        .saves_sequence = options.saves_sequence,
                        .activations = options.activations};
  MemoryRequest largest = request;
  if (largest.chunk_tokens == 0) largest.chunk_tokens = kAutomaticChunks.front();
  request.batch_bytes = batch_list_bytes(batch_tokens(largest), options.sequences);
  return request;
}

// What does not depend on where the model is computed.
struct LoadedModel {
  ModelWeights weights;
  std::unique_ptr<ExpertStore> store;
};

// A profile's experts are kept in what the cache has beyond the experts of one token.
Result<ExpertStoreOptions> store_options(const EngineOptions& options, const ModelDir& dir,
                                         const MemoryPlan& plan) {
  ExpertStoreOptions store{.cache_bytes = plan.cache_bytes, .policy = options.store.policy};
  store.uses_per_token = double{1} * dir.config.num_layers * dir.config.experts_per_token;
  if (options.store.pinned.empty()) return store;
  const ProfiledModel model{.name = directory_name(options.model),
                            .source_fingerprint = dir.pack.source.fingerprint,
                            .shape = {dir.pack.num_layers, dir.pack.num_experts},
                            .experts_per_token = dir.config.experts_per_token};
  MOE_ASSIGN_OR_RETURN(store.kept, read_kept_records(
                                       options.store.pinned, model,
                                       [&](std::uint32_t layer, std::uint32_t expert) {
                                         return dir.pack.layout_of(layer, expert).record_bytes;
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

// Loads what the plan has room for, and notes down what it is.
Result<LoadedModel> load_model(const EngineOptions& options, const ModelDir& dir,
                               OpenedBackend& opened) {
  LoadedModel loaded;
  MOE_ASSIGN_OR_RETURN(loaded.weights, load_model_weights(dir, options.threads));
  opened.fingerprint = model_fingerprint(dir, loaded.weights);
  MOE_ASSIGN_OR_RETURN(const ExpertStoreOptions store, store_options(options, dir, opened.plan));
  MOE_ASSIGN_OR_RETURN(loaded.store, ExpertStore::open(dir.pack_path, dir.pack, store));
  opened.config = dir.config;
  opened.size = model_size(dir.config, loaded.weights, dir.pack);
  return loaded;
}

Result<OpenedBackend> open_cpu(const EngineOptions& options, const SelectedModel& selected) {
  const ModelDir& dir = selected.dir;
  MOE_RETURN_IF_ERROR(check_kernel_support(*selected.kernels, dir));
  MOE_RETURN_IF_ERROR(check_car(options, dir.config));
  MOE_RETURN_IF_ERROR(check_saves(options, dir));
  MemoryRequest request =
      memory_request(options, state_form(*selected.kernels, options.kv_encoding));
  const bool any_cut = is_batch_invariant(*selected.kernels, options.activations, dir);
  // A prompt is saved where it may be cut: at chunks, which must not change with free memory.
  if (request.saves_sequence && !any_cut && request.chunk_tokens == 0) {
    request.chunk_tokens = kMostCachedChunk;
  }
  OpenedBackend opened;
  opened.chosen = options.backend == Backend::kAuto ? Backend::kCpu : options.backend;
  MOE_ASSIGN_OR_RETURN(opened.plan,
                       plan_memory(dir.config, resident_memory(dir), dir.pack, request));
  request.chunk_tokens = opened.plan.chunk_tokens;
  opened.chunk_tokens = static_cast<std::uint32_t>(request.chunk_tokens);
  opened.cut_tokens = any_cut ? 1 : request.chunk_tokens;
  const ActivationLimits limits{.tokens = batch_tokens(request),
                                .threads = options.threads,
                                .context = options.context,
                                .activations = options.activations};
  MOE_ASSIGN_OR_RETURN(LoadedModel loaded, load_model(options, dir, opened));
  CpuForwardExtras extras{.recorder = nullptr, .car = options.car};
  MOE_ASSIGN_OR_RETURN(extras.recorder, make_recorder(options, dir, opened.fingerprint));
  MOE_ASSIGN_OR_RETURN(
      opened.backend,
      make_cpu_forward(dir.config, std::move(loaded.weights), std::move(loaded.store),
                       *selected.kernels, limits, options.kv_encoding, std::move(extras)));
  return opened;
}

// The machine's own memory beside a device that computes: the residents while they are copied, and
// records on their way.
Result<MemoryPlan> plan_host(const EngineOptions& options, const ModelDir& dir,
                             std::uint32_t chunk_tokens, bool holds_all_experts) {
  MemoryRequest request =
      memory_request(options, state_form(reference_kernels(), KvEncoding::kFloat32));
  request.on_device = true;
  request.chunk_tokens = chunk_tokens;
  MOE_ASSIGN_OR_RETURN(const MemoryPlan plan,
                       plan_memory(dir.config, resident_memory(dir), dir.pack, request));
  if (!holds_all_experts || options.cache_bytes != 0) return plan;
  request.cache_bytes = plan.cache_floor_bytes;
  return plan_memory(dir.config, resident_memory(dir), dir.pack, request);
}

// `must_hold_all`: refuses, before anything is loaded, where not all experts fit.
Result<OpenedBackend> open_vulkan(const EngineOptions& options, const ModelDir& dir,
                                  bool must_hold_all) {
  MOE_RETURN_IF_ERROR(check_vulkan_support(dir, options.kv_encoding));
  MOE_RETURN_IF_ERROR(check_recorded(options));
  MOE_RETURN_IF_ERROR(check_saves(options, dir));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<VulkanDevice> device,
                       VulkanDevice::open(options.vulkan_options()));
  OpenedBackend opened;
  opened.chosen = Backend::kVulkan;
  opened.chunk_tokens = options.chunk_tokens != 0 ? options.chunk_tokens : kDeviceChunk;
  opened.cut_tokens = opened.chunk_tokens;
  const std::uint64_t rows = std::min<std::uint64_t>(
      opened.chunk_tokens, options.sequences * std::uint64_t{options.context});
  MOE_ASSIGN_OR_RETURN(const VulkanPlan plan,
                       plan_vulkan(dir.config, dir.pack,
                                   {.context = options.context,
                                    .sequences = options.sequences,
                                    .rows = rows,
                                    .subgroup_size = device->info().subgroup_size,
                                    .kv_encoding = options.kv_encoding,
                                    .resident_bytes = resident_memory(dir),
                                    .free_bytes = device->free_bytes(),
                                    .budget = options.vram_bytes}));
  if (must_hold_all && !plan.holds_all_experts()) {
    return invalid_argument(device->info().name + " has no room for all experts");
  }
  opened.device =
      DeviceUse{.name = device->info().name, .driver = device->info().driver, .plan = plan};
  MOE_ASSIGN_OR_RETURN(opened.plan,
                       plan_host(options, dir, opened.chunk_tokens, plan.holds_all_experts()));
  MOE_ASSIGN_OR_RETURN(LoadedModel loaded, load_model(options, dir, opened));
  MOE_ASSIGN_OR_RETURN(
      opened.backend,
      make_vulkan_forward(std::move(device), dir.config, loaded.weights, dir.pack,
                          std::move(loaded.store),
                          {.context = options.context,
                           .sequences = options.sequences,
                           .rows = rows,
                           .kv_encoding = options.kv_encoding,
                           .is_exact = options.activations == ActivationType::kFloat32,
                           .pipeline_file = options.pipeline_file,
                           .plan = plan}));
  return opened;
}

// Whether the system shows a GPU at all: asking Vulkan loads every driver there is, which takes
// longer than opening a small model does.
bool may_have_gpu() {
#ifdef __linux__
  constexpr std::array<const char*, 4> kNodes{"/dev/dri", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"};
  return std::any_of(kNodes.begin(), kNodes.end(), [](const char* node) { return is_there(node); });
#else
  return true;
#endif
}

// Whether there is a GPU of its own, not a processor that plays one.
bool has_gpu() {
  if (!may_have_gpu()) return false;
  const Result<std::vector<VulkanDeviceInfo>> devices = list_vulkan_devices();
  if (!devices.is_ok()) return false;
  return std::any_of(devices.value().begin(), devices.value().end(),
                     [](const VulkanDeviceInfo& device) {
                       return device.lacks.empty() && device.type != VulkanDeviceType::kCpu;
                     });
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
  if (options.backend == Backend::kVulkan) {
    MOE_ASSIGN_OR_RETURN(const ModelDir dir,
                         open_model_dir(options.model, options.pack, options.overlays));
    return open_vulkan(options, dir, false);
  }
  MOE_ASSIGN_OR_RETURN(const SelectedModel selected, open_selected_model(options));
  if (options.backend == Backend::kAuto) return open_auto(options, selected);
  return open_cpu(options, selected);
}

}  // namespace moepack
