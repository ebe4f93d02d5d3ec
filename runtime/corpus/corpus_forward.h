// A model over a whole corpus, layer by layer: every token through layer L before layer L + 1, so
// that each expert is read once. The corpus is a list of windows, each from a fresh state.
//
// It computes what Engine::forward computes of each window, but adds up a token's experts in the
// order of their ids and not of their ranks, so the two agree to rounding. The result depends
// neither on the number of threads nor on the memory there is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "formats/base/status.h"
#include "formats/model_dir.h"
#include "runtime/model/function_ref.h"
#include "runtime/model/kernels.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/router.h"
#include "runtime/store/expert_store.h"

namespace moepack {

// A pass over a corpus leaves 1 / kCorpusReserveDivisor of the machine's free memory to others.
constexpr std::uint64_t kCorpusReserveDivisor = 16;

struct TokenWindow {
  std::uint64_t first = 0;  // index of its first token in the corpus
  std::uint64_t count = 0;
};

struct CorpusOptions {
  const Kernels* kernels = nullptr;
  std::uint32_t threads = 1;
  std::uint64_t context = 512;    // most tokens of a window
  std::uint64_t cache_bytes = 0;  // for expert records; 0: a few of the largest
};

// The memory that a pass takes, in bytes, as pure arithmetic.
struct CorpusMemory {
  std::uint64_t resident_bytes = 0;   // model_weights.bin
  std::uint64_t state_bytes = 0;      // of one window
  std::uint64_t scratch_bytes = 0;    // of one chunk of tokens
  std::uint64_t cache_bytes = 0;      // expert records of one batch
  std::uint64_t per_token_bytes = 0;  // hidden states, inputs or sums of experts, routing

  std::uint64_t fixed_bytes() const {
    return resident_bytes + state_bytes + scratch_bytes + cache_bytes;
  }
  std::uint64_t total_bytes(std::uint64_t tokens) const {
    return fixed_bytes() + tokens * per_token_bytes;
  }
};
CorpusMemory corpus_memory(const ModelDir& model, const CorpusOptions& options);

// What the experts of a layer were given by one piece of a window. Valid during the call.
struct ExpertInputs {
  std::uint64_t first_token = 0;  // in the corpus
  std::size_t tokens = 0;
  std::span<const float> inputs;  // [tokens, H]: output of the post-attention norm
  // [tokens * K], token counted within the piece; none where the layer has no experts.
  std::span<const Assignment> routing;
};
using ExpertInputsSink = std::function<Status(const ExpertInputs&)>;

// One thread calls it; the work is shared among CorpusOptions::threads.
class CorpusForward {
 public:
  // `model` outlives the object.
  static Result<std::unique_ptr<CorpusForward>> open(const ModelDir& model,
                                                     const CorpusOptions& options);
  ~CorpusForward();
  CorpusForward(const CorpusForward&) = delete;
  CorpusForward& operator=(const CorpusForward&) = delete;

  // Takes the corpus and sets hidden() to the embeddings. Windows follow each other from token 0.
  Status start(std::span<const std::int32_t> tokens, std::vector<TokenWindow> windows);
  // Takes the corpus but makes only room for its hidden states, which the caller fills. Hidden
  // states that are there already stay, so that between two layers windows may be added behind the
  // others.
  void resume(std::uint64_t tokens, std::vector<TokenWindow> windows);

  // The residual stream, float32 [tokens, H].
  std::span<float> hidden();

  // Computes the first half of a layer for all windows; everything that the experts get goes to
  // `sink` in order. NaN or infinity in the inputs or the router's logits is kCorrupt with layer
  // and token.
  Status mix(std::uint32_t layer, const ExpertInputsSink& sink);
  // Computes the second half of the layer, with the routing of mix(). `done` is told how many uses
  // of experts were computed.
  Status add_experts(std::uint32_t layer, const std::function<void(std::size_t)>& done);

  // After the last layer: the logits of `tokens` rows of hidden() from `first` on, [tokens, V].
  Status logits(std::uint64_t first, std::size_t tokens, std::vector<float>& out);

  // Calls body(i) for every i < count, each once, in any order, on all threads of the pass.
  void for_each(std::size_t count, FunctionRef<void(std::size_t)> body);

  // Replaces the routing of mix(), for measuring.
  void set_routing(std::vector<Assignment> routing);

  ExpertStoreStats expert_stats() const;
  std::string_view kernels_name() const;

 private:
  struct Impl;
  explicit CorpusForward(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moepack
