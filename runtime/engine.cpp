#include "runtime/engine.h"

#include <algorithm>

#include "formats/model_dir.h"
#include "runtime/model/compute.h"
#include "runtime/model/kernel_support.h"
#include "runtime/model/layer_forward.h"
#include "runtime/model/model_state.h"
#include "runtime/model/model_weights.h"
#include "runtime/model/resident_tensors.h"

namespace moepack {
namespace {

// Tokens whose logits are computed together: their rows of the vocabulary stay in memory.
constexpr std::size_t kLogitsTokens = 16;
constexpr std::uint32_t kIoThreads = 4;

}  // namespace

Result<Backend> parse_backend(std::string_view name) {
  if (name == "auto" || name == "cpu") return Backend::kCpu;
  if (name == "reference") return Backend::kReference;
  return invalid_argument("unknown backend " + printable(name),
                          "known are auto, reference and cpu");
}

Result<const Kernels*> backend_kernels(Backend backend, CpuLevel level) {
  if (backend == Backend::kReference) return &reference_kernels();
  return cpu_kernels(level);
}

struct Engine::Impl {
  Impl(ModelConfig model_config, ModelWeights model_weights, ModelState model_state,
       std::unique_ptr<ExpertStore> expert_store, const Kernels& kernels,
       const EngineOptions& options, MemoryPlan memory_plan)
      : config(std::move(model_config)),
        weights(std::move(model_weights)),
        state(std::move(model_state)),
        store(std::move(expert_store)),
        plan(memory_plan),
        chunk(options.chunk_tokens),
        layers(config, weights, kernels, options.threads, chunk, options.context) {
    hidden.resize(chunk * config.hidden_size);
    normed.resize(chunk * config.hidden_size);
    logits.resize(kLogitsTokens * config.vocab_size);
  }

  Status run_layer(std::uint32_t index, std::size_t tokens, ForwardObserver* observer);
  Status run_chunk(std::span<const std::int32_t> tokens, ForwardObserver* observer);
  Status give_logits(std::size_t chunk_start, std::size_t first, std::size_t tokens,
                     const LogitsSink& sink);

  ModelConfig config;
  ModelWeights weights;
  ModelState state;
  std::unique_ptr<ExpertStore> store;
  MemoryPlan plan;
  std::size_t chunk;
  LayerForward layers;
  std::vector<float> hidden;  // [chunk, H]: the residual stream
  std::vector<float> normed;  // [chunk, H]: output of the final norm
  std::vector<float> logits;  // [kLogitsTokens, V]
};

// h = x + mixer(norm(x)); y = h + moe(norm(h)).
Status Engine::Impl::run_layer(std::uint32_t index, std::size_t tokens, ForwardObserver* observer) {
  const std::span<const float> routing =
      layers.mix(index, state.layer(index), state.position(), tokens, hidden.data());
  if (observer != nullptr) observer->on_router(index, tokens, routing);
  MOE_RETURN_IF_ERROR(layers.add_experts(index, *store, hidden.data()));
  if (observer != nullptr) {
    observer->on_layer(index, tokens, std::span(hidden).first(tokens * config.hidden_size));
  }
  return Status::ok();
}

Status Engine::Impl::run_chunk(std::span<const std::int32_t> tokens, ForwardObserver* observer) {
  const std::size_t width = config.hidden_size;
  MOE_RETURN_IF_ERROR(layers.embed(tokens, hidden.data()));
  if (observer != nullptr) {
    observer->on_embedding(tokens.size(), std::span(hidden).first(tokens.size() * width));
  }
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    MOE_RETURN_IF_ERROR(run_layer(layer, tokens.size(), observer));
  }
  state.advance(tokens.size());
  return Status::ok();
}

// Logits of the chunk's tokens from `first` (index in the chunk) on.
Status Engine::Impl::give_logits(std::size_t chunk_start, std::size_t first, std::size_t tokens,
                                 const LogitsSink& sink) {
  const std::size_t vocab = config.vocab_size;
  for (std::size_t t = first; t < tokens; t += kLogitsTokens) {
    const std::size_t count = std::min(kLogitsTokens, tokens - t);
    layers.compute().matmul(weights.lm_head, normed.data() + t * config.hidden_size, count,
                            logits.data());
    for (std::size_t i = 0; i < count; ++i) {
      MOE_RETURN_IF_ERROR(
          sink(chunk_start + t + i, std::span<const float>(logits).subspan(i * vocab, vocab)));
    }
  }
  return Status::ok();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const EngineOptions& options) {
  if (options.threads == 0 || options.chunk_tokens == 0 || options.context == 0) {
    return invalid_argument("threads, context and chunk must be at least 1");
  }
  MOE_ASSIGN_OR_RETURN(const Kernels* kernels, backend_kernels(options.backend, options.cpu_level));
  MOE_ASSIGN_OR_RETURN(const ModelDir dir,
                       open_model_dir(options.model, options.pack, options.overlays));
  MOE_RETURN_IF_ERROR(check_kernel_support(*kernels, dir));
  EngineOptions fitted = options;
  fitted.chunk_tokens =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.chunk_tokens, options.context));
  MOE_ASSIGN_OR_RETURN(const MemoryPlan plan,
                       plan_memory(dir.config, resident_memory(dir), dir.pack,
                                   {.context = fitted.context,
                                    .chunk_tokens = fitted.chunk_tokens,
                                    .cache_bytes = fitted.cache_bytes,
                                    .available_bytes = available_memory_bytes()}));
  MOE_ASSIGN_OR_RETURN(ModelWeights weights, load_model_weights(dir));
  MOE_ASSIGN_OR_RETURN(ModelState state, ModelState::create(dir.config, fitted.context));
  MOE_ASSIGN_OR_RETURN(
      std::unique_ptr<ExpertStore> store,
      ExpertStore::open(dir.pack_path, dir.pack,
                        {.cache_bytes = plan.cache_bytes, .io_threads = kIoThreads}));
  auto impl = std::make_unique<Impl>(dir.config, std::move(weights), std::move(state),
                                     std::move(store), *kernels, fitted, plan);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

void Engine::reset() { impl_->state.reset(); }

Status Engine::forward(std::span<const std::int32_t> tokens, std::size_t first_logits,
                       const LogitsSink& sink, ForwardObserver* observer) {
  Impl& e = *impl_;
  if (tokens.size() > e.state.context() - e.state.position()) {
    return invalid_argument(std::to_string(e.state.position() + tokens.size()) +
                                " tokens do not fit the context of " +
                                std::to_string(e.state.context()),
                            "raise -c or shorten the prompt");
  }
  for (std::size_t start = 0; start < tokens.size(); start += e.chunk) {
    const std::size_t count = std::min(e.chunk, tokens.size() - start);
    MOE_RETURN_IF_ERROR(e.run_chunk(tokens.subspan(start, count), observer));
    if (start + count <= first_logits && observer == nullptr) continue;
    rms_norm(e.layers.compute(), e.hidden.data(), e.weights.final_norm, e.config.rms_norm_eps,
             count, e.config.hidden_size, e.normed.data());
    if (observer != nullptr) {
      observer->on_final_norm(count, std::span(e.normed).first(count * e.config.hidden_size));
    }
    const std::size_t first = first_logits > start ? first_logits - start : 0;
    MOE_RETURN_IF_ERROR(e.give_logits(start, first, count, sink));
  }
  return Status::ok();
}

WindowForward Engine::window_forward() {
  return [this](std::span<const std::int32_t> tokens, std::size_t first, const LogitsSink& sink) {
    reset();
    return forward(tokens, first, sink);
  };
}

const ModelConfig& Engine::config() const { return impl_->config; }
std::uint64_t Engine::context() const { return impl_->state.context(); }
std::uint64_t Engine::position() const { return impl_->state.position(); }
std::string_view Engine::kernels_name() const { return impl_->layers.compute().kernels().name; }
const MemoryPlan& Engine::memory_plan() const { return impl_->plan; }
ExpertStoreStats Engine::expert_stats() const { return impl_->store->stats(); }
void Engine::reset_stats() { impl_->store->reset_stats(); }

}  // namespace moepack
