// The flags of every command that runs a model, and what they select.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "runtime/engine.h"
#include "runtime/model/model_selection.h"

namespace moepack::cli {

// How inputs of products are held by commands that answer or measure; those that score take floats.
inline constexpr ActivationType kAnswerActivations = ActivationType::kInt16;

// Positions that a sequence may take where `-c` is not given.
inline constexpr std::uint64_t kDefaultContext = 4096;

struct ModelFlags {
  std::string model;
  std::string pack;
  std::vector<std::string> overlays;
  std::string backend = "auto";
  std::string cpu = "auto";
  std::uint32_t threads = 0;           // 0: one per processor
  std::int32_t device = -1;            // -1: the best
  std::uint64_t vram_mib = 0;          // 0: what is free
  std::vector<std::uint32_t> devices;  // that share the layers; empty: one
  std::vector<double> tensor_split;    // their shares; empty: by free memory
};

// Of commands that open an engine.
struct EngineFlags : ModelFlags {
  std::uint64_t cache_mib = 0;  // 0: automatic
  std::uint64_t ram_mib = 0;    // 0: what the system can give
  std::string cache_policy = "lru";
  std::string pin;    // a profile; empty: none
  std::string trace;  // a file; empty: none
  std::string cold_experts = "fetch";
  std::string gpu_order = "auto";
  std::string hot_profile;  // empty: none
  std::string hot_weighting = "flat";
  double hot_update_rate = 0;
  std::string lane_report;           // a file; empty: none
  std::string car;                   // "J,M"; empty: exact routing
  std::uint32_t chunk_tokens = 0;    // 0: automatic
  bool saves_sequence = false;       // EngineOptions::saves_sequence
  std::uint64_t snapshot_bytes = 0;  // EngineOptions::snapshot_bytes
  Timeline* timeline = nullptr;      // EngineOptions::timeline
  std::string kv_cache_type;         // empty: kv_cache_default
  std::string cache_type_k;          // the same as llama.cpp has it: both or neither
  std::string cache_type_v;
  std::string kv_cache_default = "f32";  // with the cpu backend; the reference has f32
  // As the command's default, and as given.
  ActivationType default_activations = ActivationType::kFloat32;
  std::string activations;
  std::string io = "auto";
  std::string io_engine = "auto";
  std::int32_t lookahead = -1;
  std::vector<std::string> pack_directories;
};

// Adds -m/positional MODEL, --pack, --overlay, --backend, --cpu, -t to `command`.
void add_model_flags(CLI::App& command, ModelFlags& flags);
// The same and --cache-mb, --ram-mb, --io, --io-engine, --lookahead, --pack-dir, --cache-policy,
// --pin, --trace, --car, --chunk, --activations, --kv-cache-type with the names that llama.cpp has
// for it.
void add_engine_flags(CLI::App& command, EngineFlags& flags);
// The same without -t, for a command that has one of its own.
void add_engine_flags_but_threads(CLI::App& command, EngineFlags& flags);
// --hot-update-rate and --lane-report, of commands that answer requests.
void add_lane_flags(CLI::App& command, EngineFlags& flags);

// Checks the flags, the path of the model first. --overlay names each group once; "all": those that
// the model has.
Result<ModelSelection> select_model(const ModelFlags& flags);
// The options of an engine for `sequences` sequences of at most `context` tokens. The model's path
// is not looked at: it need not be a directory of ours.
Result<EngineOptions> engine_options(const EngineFlags& flags, std::uint64_t context,
                                     std::uint32_t sequences);
// Checks the path of the model, and opens the engine for `sequences` sequences of at most `context`
// tokens.
Result<std::unique_ptr<Engine>> open_engine(const EngineFlags& flags, std::uint64_t context,
                                            std::uint32_t sequences = 1);
// A line about cache-aware routing, where it is on: the share of choices that exact routing would
// have made too.
std::string agreement_text(const RoutingAgreement& agreement);
// Says on stderr that -c asks for more than the model was made for: it may do badly there, but it
// can be run.
void note_long_context(std::uint64_t context, const ModelConfig& config);

}  // namespace moepack::cli
