// A model ready to run: opened once, fed tokens, reset between prompts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/pack/resident_overlay.h"
#include "runtime/model/kernels.h"
#include "runtime/model/memory_plan.h"
#include "runtime/score/logits_sink.h"
#include "runtime/store/expert_store.h"

namespace moepack {

enum class Backend : std::uint8_t {
  kReference,  // scalar float32: the oracle
  kCpu,        // SIMD kernels chosen for this processor
};

// "auto", "reference" or "cpu"; auto is cpu. kInvalidArgument otherwise.
Result<Backend> parse_backend(std::string_view name);
// The kernel table of a backend; kUnsupported when this machine cannot run it. `level` is of the
// cpu backend alone.
Result<const Kernels*> backend_kernels(Backend backend, CpuLevel level);

struct EngineOptions {
  std::filesystem::path model;
  std::string pack;  // as open_model_dir takes it
  std::vector<OverlayGroup> overlays;
  Backend backend = Backend::kCpu;
  CpuLevel cpu_level = CpuLevel::kScalar;  // of the cpu backend
  std::uint32_t threads = 1;
  std::uint64_t context = 4096;      // most tokens between two resets
  std::uint64_t cache_bytes = 0;     // 0: chosen from the memory there is
  std::uint32_t chunk_tokens = 512;  // tokens computed at once
};

// Sees what passes between the layers; for tests, comparisons and calibration. All rows are of the
// tokens of one chunk, [tokens, width], valid during the call.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // Output of the embedding.
  virtual void on_embedding(std::size_t tokens, std::span<const float> hidden) = 0;
  // Router logits of a layer, before softmax: [tokens, num_experts].
  virtual void on_router(std::uint32_t layer, std::size_t tokens,
                         std::span<const float> logits) = 0;
  // Output of a layer.
  virtual void on_layer(std::uint32_t layer, std::size_t tokens, std::span<const float> hidden) = 0;
  // Output of the final norm.
  virtual void on_final_norm(std::size_t tokens, std::span<const float> hidden) = 0;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Forgets every token: the next forward starts from a fresh state.
  void reset();

  // Runs `tokens` after those seen since the last reset, and gives the logits of every index >=
  // first_logits to `sink` (in order). Any number of tokens; they are computed in chunks. On an
  // error the state is undefined until reset(). `observer` may be null.
  Status forward(std::span<const std::int32_t> tokens, std::size_t first_logits,
                 const LogitsSink& sink, ForwardObserver* observer = nullptr);

  // reset() and forward() as a function, for scoring.
  WindowForward window_forward();

  const ModelConfig& config() const;
  std::uint64_t context() const;
  std::uint64_t position() const;         // tokens seen since reset
  std::string_view kernels_name() const;  // the kernel table that computes
  const MemoryPlan& memory_plan() const;
  ExpertStoreStats expert_stats() const;
  void reset_stats();

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
