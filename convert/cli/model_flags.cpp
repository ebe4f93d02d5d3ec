#include "convert/cli/model_flags.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <utility>

#include "convert/cli/command.h"
#include "convert/cli/kept_inputs.h"
#include "convert/cli/model_path.h"
#include "convert/cli/number_range.h"
#include "convert/cli/output.h"
#include "convert/cli/progress.h"
#include "runtime/model/chunk_choice.h"
#include "runtime/store/cache_policy.h"
#include "runtime/vulkan/pipeline_file.h"

namespace moepack::cli {
namespace {

Result<std::vector<OverlayGroup>> overlay_groups(const ModelFlags& flags) {
  std::vector<OverlayGroup> groups;
  bool all = false;
  for (const std::string& name : flags.overlays) {
    const auto group = overlay_group_from_name(name);
    if (!group.has_value() && name != "all") {
      return invalid_argument("--overlay " + printable(name) + " is no group of tensors",
                              "known are embedding, lm_head, attention, linear_attention, "
                              "shared_experts and all");
    }
    all = all || !group.has_value();
    if (group.has_value() && std::find(groups.begin(), groups.end(), *group) == groups.end()) {
      groups.push_back(*group);
    }
  }
  if (!all) return groups;
  groups = list_overlay_groups(flags.model);
  if (!groups.empty()) return groups;
  return not_found(Where{.file = flags.model}, "has no overlays",
                   "make some with moepack overlay, or leave --overlay out");
}

// The reference backend computes in float32 unless it is told otherwise.
Result<ActivationType> select_activations(const EngineFlags& flags, Backend backend) {
  if (!flags.activations.empty()) return parse_activation_type(flags.activations);
  return backend == Backend::kReference ? ActivationType::kFloat32 : flags.default_activations;
}

void add_selection(CLI::App& command, ModelFlags& flags) {
  command.add_option("-m,--model,MODEL", flags.model, "Model directory")->required();
  command.add_option("--pack", flags.pack,
                     "Expert pack: NAME of packed_experts_NAME, or a directory's whole name");
  command
      .add_option("--overlay", flags.overlays,
                  "Take these residents from MODEL/gguf instead: embedding, lm_head, attention, "
                  "linear_attention, shared_experts, separated by commas; all: those there are")
      ->delimiter(',')
      ->allow_extra_args(false);  // what follows may be MODEL
  command
      .add_option("--backend", flags.backend,
                  "reference, cpu, vulkan (a GPU), or auto: a GPU that has room for the whole "
                  "model, else the processor")
      ->envname("MOEPACK_BACKEND")
      ->capture_default_str();
  command
      .add_option("--cpu", flags.cpu,
                  "Instruction set of the cpu backend: auto, " + cpu_level_names())
      ->capture_default_str();
}

// The encoding of keys and values that the flags name.
Result<KvEncoding> select_kv_encoding(const EngineFlags& flags, Backend backend) {
  std::string name = flags.kv_cache_type;
  if (flags.cache_type_k != flags.cache_type_v) {
    return invalid_argument("--cache-type-k and --cache-type-v differ",
                            "keys and values have one encoding; give both the same, or "
                            "--kv-cache-type");
  }
  if (!flags.cache_type_k.empty()) {
    if (!name.empty() && name != flags.cache_type_k) {
      return invalid_argument("--kv-cache-type and --cache-type-k differ", "give one of them");
    }
    name = flags.cache_type_k;
  }
  if (name.empty()) name = backend == Backend::kReference ? "f32" : flags.kv_cache_default;
  return parse_kv_encoding(name);
}

// More than any model uses of a layer.
constexpr std::uint64_t kMostLookahead = 64;

Result<ModelSelection> selection_of(const ModelFlags& flags) {
  ModelSelection selection;
  selection.model = flags.model;
  selection.pack = flags.pack;
  MOE_ASSIGN_OR_RETURN(selection.overlays, overlay_groups(flags));
  MOE_ASSIGN_OR_RETURN(selection.backend, parse_backend(flags.backend));
  MOE_ASSIGN_OR_RETURN(selection.cpu_level, parse_cpu_level(flags.cpu));
  selection.threads = thread_count(flags.threads);
  if (flags.device >= 0) selection.device = static_cast<std::uint32_t>(flags.device);
  selection.vram_bytes = flags.vram_mib << 20;
  if (flags.devices.size() == 1) selection.device = flags.devices.front();
  selection.devices = flags.devices;
  selection.tensor_split = flags.tensor_split;
  return selection;
}

StageOrdering gpu_order_of(const EngineFlags& flags) {
  if (flags.gpu_order == "barriers") return StageOrdering::kBarriers;
  return flags.gpu_order == "counters" ? StageOrdering::kCounters : StageOrdering::kAuto;
}

// How experts are read, as the flags say.
void add_reading_flags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option(
          "--io", flags.io,
          "How experts are read: buffered (through the page cache), direct (past it), mmap, "
          "or auto: as memory and disk recommend")
      ->envname("MOEPACK_IO")
      ->capture_default_str();
  command
      .add_option("--io-engine", flags.io_engine,
                  "Who reads them: threads, uring (Linux's io_uring), or auto")
      ->envname("MOEPACK_IO_ENGINE")
      ->capture_default_str();
  command
      .add_option("--lookahead", flags.lookahead,
                  "Read so many experts of the next layer ahead for each token, as its router "
                  "guesses them now; changes no result; 0: none, -1: three eighths of those that a "
                  "token uses, where not all fit into memory; cpu alone")
      ->check(whole_number(-1, kMostLookahead))
      ->capture_default_str();
  command
      .add_option("--pack-dir", flags.pack_directories,
                  "Another directory with the same expert pack or layer files of it, on a second "
                  "disk: both are read; may be given several times")
      ->allow_extra_args(false);
}

// "J,M"; false where the text is none.
bool parse_car(const std::string& text, CacheAwareRouting& car) {
  const char* end = text.data() + text.size();
  const auto always = std::from_chars(text.data(), end, car.always);
  if (always.ec != std::errc() || always.ptr == end || *always.ptr != ',') return false;
  const auto among = std::from_chars(always.ptr + 1, end, car.among);
  return among.ec == std::errc() && among.ptr == end && car.among > 0;
}

std::string check_car(const std::string& text) {
  CacheAwareRouting car;
  return parse_car(text, car) ? "" : printable(text, 64) + " is no pair of numbers, as in 2,12";
}

// Which experts stay in memory, and what is noted of them.
void add_cache_flags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option(
          "--cache-policy", flags.cache_policy,
          "Which experts leave that memory first: lru, those not used for the longest time; "
          "lfru, those used least often, where a use counts less the older it is")
      ->check(CLI::IsMember({"lru", "lfru"}))
      ->capture_default_str();
  command.add_option("--pin", flags.pin,
                     "Keep the experts in memory that this profile of moepack profile says are "
                     "hottest, as far as --cache-mb holds more than one token's");
  command.add_option("--trace", flags.trace,
                     "Record in this file which experts are used; moepack bench replays it");
  command
      .add_option("--car", flags.car,
                  "Cache-aware routing, J,M: a token keeps its J most probable experts and takes "
                  "the others from the M most probable, those in memory first. The text then "
                  "depends on what is in memory, and is not the model's own; off by default")
      ->check(CLI::Validator(check_car, "J,M"));
}

// Which experts a GPU keeps.
void add_hot_flags(CLI::App& command, EngineFlags& flags) {
  command.add_option(
      "--hot-profile", flags.hot_profile,
      "With --cold-experts cpu: keep the experts on the GPU that this profile of "
      "moepack profile or of llama.cpp's hot cache says are used most; without it as "
      "many of each layer, the first ones");
  command
      .add_option("--hot-weighting", flags.hot_weighting,
                  "Which they are: flat (the most used of each layer), balanced, pressure (of all "
                  "layers, more where the processor holds the GPU up), smooth or time")
      ->check(CLI::IsMember({"flat", "balanced", "pressure", "smooth", "time"}))
      ->capture_default_str();
}

Result<HotOptions> select_hot(const EngineFlags& flags) {
  HotOptions hot;
  hot.profile = flags.hot_profile;
  MOE_ASSIGN_OR_RETURN(hot.weighting, parse_slot_weighting(flags.hot_weighting));
  hot.update_rate = flags.hot_update_rate;
  hot.report = flags.lane_report;
  if (!flags.lane_report.empty()) {
    const std::array<std::filesystem::path, 2> inputs{flags.model, flags.pin};
    MOE_RETURN_IF_ERROR(check_named_output("--lane-report", flags.lane_report, inputs));
  }
  return hot;
}

Result<StoreOptions> select_store(const EngineFlags& flags) {
  StoreOptions store;
  MOE_ASSIGN_OR_RETURN(store.io, parse_io_mode(flags.io));
  MOE_ASSIGN_OR_RETURN(store.engine, parse_io_engine(flags.io_engine));
  store.is_lookahead_automatic = flags.lookahead < 0;
  if (flags.lookahead > 0) store.lookahead = static_cast<std::uint32_t>(flags.lookahead);
  MOE_ASSIGN_OR_RETURN(store.policy, parse_cache_policy(flags.cache_policy));
  store.pinned = flags.pin;
  store.trace = flags.trace;
  if (!flags.trace.empty()) {
    const std::array<std::filesystem::path, 2> inputs{flags.model, flags.pin};
    MOE_RETURN_IF_ERROR(check_named_output("--trace", flags.trace, inputs));
  }
  store.disk_file = default_disk_file();
  store.on_notice = [](const std::string& line) {
    std::cerr << line_start() + ("moepack: note: " + line + "\n");
  };
  store.pack_directories.assign(flags.pack_directories.begin(), flags.pack_directories.end());
  return store;
}

// Says on stderr which backend computes, where the choice was left to the program and there was
// one.
void note_backend(const Engine& engine) {
  if (!engine.device_use().has_value() || engine.backend_choice().empty()) return;
  std::cerr << "moepack: note: " << engine.backend_choice() << "\n";
}

std::string hot_text(const HotPlan& plan, const HotOptions& options) {
  std::ostringstream out;
  out << plan.slots;
  if (!plan.set.has_value()) {
    if (plan.slots > 0) out << ", the first ones of each layer";
    return out.str();
  }
  out << " by " << printable(options.profile.string(), 512) << ", "
      << slot_weighting_name(options.weighting) << ": " << std::fixed << std::setprecision(1)
      << 100 * plan.hit_share << " % of its uses";
  return out.str();
}

// Says on stderr who computes the experts that have no room on the device, where that was asked.
void note_cold_experts(const Engine& engine) {
  const std::optional<DeviceUse>& device = engine.device_use();
  const ColdExperts asked = engine.options().cold_experts;
  if (!device.has_value() || asked == ColdExperts::kFetch) return;
  std::cerr << "moepack: note: ";
  if (device->plan.holds_all_experts()) {
    std::cerr << "all experts are on the GPU, none is cold\n";
    return;
  }
  std::cerr << "cold experts: " << cold_experts_name(device->cold);
  if (!device->cold_reason.empty()) std::cerr << ": " << device->cold_reason;
  std::cerr << "\n";
  if (device->cold == ColdExperts::kCpu && !engine.options().hot_experts.has_value()) {
    std::cerr << "moepack: note: hot experts: " << hot_text(device->hot, engine.options().hot)
              << "\n";
  }
}

// Says on stderr that a profile of hot experts has no use here.
void note_unused_profile(const Engine& engine) {
  if (engine.options().hot.profile.empty()) return;
  const std::optional<DeviceUse>& device = engine.device_use();
  const std::string reason =
      device.has_value() ? device->hot.reason : "the processor computes all experts";
  if (reason.empty()) return;
  std::cerr << "moepack: note: --hot-profile is not used: " << reason << "\n";
}

// Says on stderr which flags have nothing to act on, because the processor computes everything or
// the reference has one way to compute.
void note_unused_flags(const EngineFlags& flags, const Engine& engine) {
  if (engine.options().backend == Backend::kReference && flags.cpu != "auto") {
    std::cerr << "moepack: note: --cpu is not used: the reference backend computes\n";
  }
  if (engine.device_use().has_value()) return;
  const std::pair<bool, const char*> given[] = {
      {flags.device >= 0, "--device"},
      {!flags.devices.empty(), "--devices"},
      {flags.vram_mib != 0, "--vram-mb"},
      {flags.cold_experts != "fetch", "--cold-experts"},
      {flags.gpu_order != "auto", "--gpu-order"},
      {flags.hot_weighting != "flat", "--hot-weighting"},
      {flags.hot_update_rate > 0, "--hot-update-rate"},
      {!flags.lane_report.empty(), "--lane-report"},
  };
  std::string names;
  for (const auto& [is_given, name] : given) {
    if (is_given) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (names.empty()) return;
  std::cerr << "moepack: note: no GPU computes, so these are not used: " << names << "\n";
}

// Says on stderr how experts are read, where they do not all fit into memory.
void note_io(const Engine& engine) {
  const IoChoice& io = engine.io_choice();
  if (io.is_plain || io.reason.empty()) return;
  std::cerr << "moepack: note: experts are read " << io_mode_name(io.mode) << ", by "
            << io_engine_name(io.engine) << ": " << io.reason << "\n";
}

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  add_selection(command, flags);
  add_threads(command, flags.threads);
}

void add_engine_flags(CLI::App& command, EngineFlags& flags) {
  add_engine_flags_but_threads(command, flags);
  add_threads(command, flags.threads);
}

void add_engine_flags_but_threads(CLI::App& command, EngineFlags& flags) {
  add_selection(command, flags);
  command
      .add_option("--cache-mb", flags.cache_mib,
                  "Memory for experts in MiB; 0: what the machine can spare")
      ->check(whole_number(0, kMaxMebibytes))
      ->capture_default_str();
  add_reading_flags(command, flags);
  add_cache_flags(command, flags);
  command
      .add_option("--ram-mb", flags.ram_mib,
                  "Memory of the machine that may be used, in MiB; 0: what the system can give")
      ->check(whole_number(0, kMaxMebibytes))
      ->capture_default_str();
  command
      .add_option("--device", flags.device,
                  "GPU of the vulkan backend, by its number in the list of devices; -1: the best")
      ->check(whole_number(-1, 255))
      ->capture_default_str();
  command
      .add_option(
          "--devices", flags.devices,
          "GPUs that share the layers, by their numbers, as in 0,1; each has its own layers, "
          "states and experts")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->excludes("--device")
      ->check(whole_number(0, 255));
  command
      .add_option("--tensor-split", flags.tensor_split,
                  "How --devices share the layers, as in 3,1; without it by the memory that they "
                  "have free")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->needs("--devices")
      ->check(real_number(0.001, 1e6));
  command
      .add_option(
          "--vram-mb", flags.vram_mib,
          "Memory of the GPU that may be taken, of each with --devices, in MiB; 0: what is free, "
          "less a reserve")
      ->check(whole_number(0, kMaxMebibytes))
      ->capture_default_str();
  command
      .add_option("--cold-experts", flags.cold_experts,
                  "Of a GPU that has no room for all experts, those that are not there: fetch "
                  "(copied when they are chosen), cpu (computed by the processor, beside the GPU), "
                  "or auto: cpu where the GPU has memory of its own")
      ->check(CLI::IsMember({"fetch", "cpu", "auto"}))
      ->capture_default_str();
  command
      .add_option("--gpu-order", flags.gpu_order,
                  "What orders the stages of a decoded token on a GPU: barriers, counters (a stage "
                  "starts while the one before ends; for devices that start work in order), or "
                  "auto: counters where the device is known to; changes no result")
      ->check(CLI::IsMember({"auto", "barriers", "counters"}))
      ->capture_default_str();
  add_hot_flags(command, flags);
  flags.activations.clear();
  command
      .add_option("--activations", flags.activations,
                  "Inputs of products with quantized weights: i8 (a byte, fastest), i16 (two "
                  "bytes, on the processor as exact as floats) or f32")
      ->default_str(std::string(activation_type_name(flags.default_activations)));
  command
      .add_option("--chunk", flags.chunk_tokens,
                  "Tokens of a prompt computed at once; 0: by the memory there is, 32 to " +
                      std::to_string(kAutomaticChunks.front()))
      ->check(whole_number(0, 65536))
      ->capture_default_str();
  command.add_option("--kv-cache-type", flags.kv_cache_type,
                     "Keep keys and values as f32, f16, bf16 or fp8; default: " +
                         flags.kv_cache_default + " (reference backend: f32)");
  command.add_option("--cache-type-k", flags.cache_type_k,
                     "llama.cpp's name (-ctk) of --kv-cache-type; needs --cache-type-v too");
  command.add_option("--cache-type-v", flags.cache_type_v, "The same (-ctv)");
}

void add_lane_flags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--hot-update-rate", flags.hot_update_rate,
                  "After each request exchange at most this share of the experts that the GPU "
                  "keeps, 0 to 1, for ones that are used more now; 0: none. Results then depend in "
                  "their last bits on the requests before")
      ->check(real_number(0, 1))
      ->capture_default_str();
  command.add_option("--lane-report", flags.lane_report,
                     "Write what GPU and processor did, layer by layer, to this file at the end, "
                     "as llama.cpp's hot cache does; it is a profile for --hot-profile");
}

Result<ModelSelection> select_model(const ModelFlags& flags) {
  MOE_RETURN_IF_ERROR(check_model_path(flags.model));
  return selection_of(flags);
}

Result<EngineOptions> engine_options(const EngineFlags& flags, std::uint64_t context,
                                     std::uint32_t sequences) {
  EngineOptions options;
  MOE_ASSIGN_OR_RETURN(static_cast<ModelSelection&>(options), selection_of(flags));
  MOE_ASSIGN_OR_RETURN(options.kv_encoding, select_kv_encoding(flags, options.backend));
  options.context = context;
  options.sequences = sequences;
  options.cache_bytes = flags.cache_mib << 20;
  if (flags.ram_mib != 0) options.available_bytes = flags.ram_mib << 20;
  options.chunk_tokens = flags.chunk_tokens;
  options.saves_sequence = flags.saves_sequence;
  options.snapshot_bytes = flags.snapshot_bytes;
  options.timeline = flags.timeline;
  options.pipeline_file = default_pipeline_file();
  MOE_ASSIGN_OR_RETURN(options.cold_experts, parse_cold_experts(flags.cold_experts));
  options.gpu_order = gpu_order_of(flags);
  MOE_ASSIGN_OR_RETURN(options.hot, select_hot(flags));
  MOE_ASSIGN_OR_RETURN(options.store, select_store(flags));
  (void)parse_car(flags.car, options.car);  // checked where it was given; empty: off
  MOE_ASSIGN_OR_RETURN(options.activations, select_activations(flags, options.backend));
  return options;
}

Result<std::unique_ptr<Engine>> open_engine(const EngineFlags& flags, std::uint64_t context,
                                            std::uint32_t sequences) {
  MOE_RETURN_IF_ERROR(check_model_path(flags.model));
  MOE_ASSIGN_OR_RETURN(const EngineOptions options, engine_options(flags, context, sequences));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::open(options));
  note_backend(*engine);
  note_cold_experts(*engine);
  note_unused_profile(*engine);
  note_unused_flags(flags, *engine);
  note_io(*engine);
  return engine;
}

std::string agreement_text(const RoutingAgreement& agreement) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << "routing: " << 100 * agreement.share()
      << " % of the choices are the model's own (--car); the rest follows what is in memory\n";
  return out.str();
}

void note_long_context(std::uint64_t context, const ModelConfig& config) {
  if (config.max_position_embeddings == 0 || context <= config.max_position_embeddings) return;
  std::cerr << "moepack: note: -c " << context << " is more than the "
            << config.max_position_embeddings << " positions of the model's config.json\n";
}

}  // namespace moepack::cli
