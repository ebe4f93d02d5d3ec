#include "runtime/corpus/corpus_forward.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/model/activations.h"
#include "runtime/model/finite.h"
#include "runtime/model/for_each_index.h"
#include "runtime/model/kernel_support.h"
#include "runtime/model/layer_forward.h"
#include "runtime/model/layer_state.h"
#include "runtime/model/resident_tensors.h"
#include "runtime/model/token_ids.h"
#include "runtime/store/record_cache.h"

namespace moepack {
namespace {

// Tokens computed at once; part of the result's definition, because a product of few tokens may be
// rounded in another way.
constexpr std::size_t kChunkTokens = 512;
// Keys and values of a measurement are not rounded.
constexpr KvEncoding kKvEncoding = KvEncoding::kFloat32;
// Every expert is read once: the cache holds what is read at once.
constexpr std::uint64_t kCacheBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kCacheRecords = 8;

std::size_t chunk_of(const CorpusOptions& options) {
  return std::min<std::size_t>(kChunkTokens, options.context);
}

std::uint64_t cache_bytes(const PackManifest& pack, const CorpusOptions& options) {
  if (options.cache_bytes != 0) return options.cache_bytes;
  std::uint64_t largest = 0;
  std::uint64_t layer_bytes = 0;
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    std::uint64_t bytes = 0;
    for (std::uint32_t e = 0; e < pack.experts_of(l); ++e) {
      const std::uint64_t record = record_memory_bytes(pack.layout_of(l, e).record_bytes);
      largest = std::max(largest, record);
      bytes += record;
    }
    layer_bytes = std::max(layer_bytes, bytes);
  }
  return std::max(largest, std::min(layer_bytes, std::max(kCacheBytes, kCacheRecords * largest)));
}

ActivationLimits limits_of(const CorpusOptions& options) {
  return {.tokens = chunk_of(options),
          .threads = options.threads,
          .context = options.context,
          .logit_rows = 0};
}

}  // namespace

CorpusMemory corpus_memory(const ModelDir& model, const CorpusOptions& options) {
  const ModelConfig& c = model.config;
  CorpusMemory memory;
  memory.resident_bytes = resident_memory(model);
  const StateForm form = state_form(*options.kernels, kKvEncoding);
  for (const LayerSpec& kind : state_kinds(c)) {
    memory.state_bytes += layer_state_bytes(c, kind, options.context, form);
  }
  memory.scratch_bytes = activation_bytes(c, limits_of(options));
  memory.cache_bytes = cache_bytes(model.pack, options);
  // Hidden states and, one after the other, what is recorded (bf16) and the sums of the experts
  // (float32).
  memory.per_token_bytes =
      2 * sizeof(float) * std::uint64_t{c.hidden_size} + c.experts_per_token * sizeof(Assignment);
  return memory;
}

struct CorpusForward::Impl {
  Impl(const ModelDir& dir, ModelWeights model_weights, std::unique_ptr<ExpertStore> expert_store,
       const CorpusOptions& options, Activations activations)
      : config(dir.config),
        weights(std::move(model_weights)),
        store(std::move(expert_store)),
        layers(config, weights, *options.kernels, limits_of(options), std::move(activations)) {}

  Status make_states(std::uint64_t context, const StateForm& form);
  LayerState& state_of(std::uint32_t layer);
  Status mix_window(std::uint32_t layer, const TokenWindow& window, const ExpertInputsSink& sink);

  const ModelConfig& config;
  ModelWeights weights;
  std::vector<LayerSpec> kinds;    // layers whose states differ
  std::vector<LayerState> states;  // of one window, of each kind
  std::unique_ptr<ExpertStore> store;
  LayerForward layers;
  std::vector<TokenWindow> windows;
  std::vector<float> hidden;        // [tokens, H]
  std::vector<Assignment> routing;  // [tokens * K] of the layer
};

Status CorpusForward::Impl::make_states(std::uint64_t context, const StateForm& form) {
  kinds = state_kinds(config);
  for (const LayerSpec& kind : kinds) {
    MOE_ASSIGN_OR_RETURN(LayerState state, LayerState::create(config, kind, context, form));
    states.push_back(std::move(state));
  }
  return Status::ok();
}

LayerState& CorpusForward::Impl::state_of(std::uint32_t layer) {
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const LayerSpec& spec) {
    return has_same_state(config, spec, config.layers[layer]);
  });
  return states[static_cast<std::size_t>(kind - kinds.begin())];
}

CorpusForward::CorpusForward(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CorpusForward::~CorpusForward() = default;

Result<std::unique_ptr<CorpusForward>> CorpusForward::open(const ModelDir& model,
                                                           const CorpusOptions& options) {
  MOE_RETURN_IF_ERROR(check_kernel_support(*options.kernels, model));
  MOE_ASSIGN_OR_RETURN(ModelWeights weights, load_model_weights(model, options.threads));
  MOE_ASSIGN_OR_RETURN(std::unique_ptr<ExpertStore> store,
                       ExpertStore::open(model.pack_path, model.pack,
                                         {.cache_bytes = cache_bytes(model.pack, options)}));
  MOE_ASSIGN_OR_RETURN(Activations activations,
                       Activations::create(model.config, limits_of(options)));
  auto impl = std::make_unique<Impl>(model, std::move(weights), std::move(store), options,
                                     std::move(activations));
  MOE_RETURN_IF_ERROR(
      impl->make_states(options.context, state_form(*options.kernels, kKvEncoding)));
  return std::unique_ptr<CorpusForward>(new CorpusForward(std::move(impl)));
}

Status CorpusForward::start(std::span<const std::int32_t> tokens,
                            std::vector<TokenWindow> windows) {
  MOE_RETURN_IF_ERROR(check_tokens(tokens, impl_->config.vocab_size));
  resume(tokens.size(), std::move(windows));
  impl_->layers.embed(tokens, impl_->hidden.data());
  return Status::ok();
}

void CorpusForward::resume(std::uint64_t tokens, std::vector<TokenWindow> windows) {
  impl_->windows = std::move(windows);
  impl_->hidden.resize(tokens * impl_->config.hidden_size);
}

std::span<float> CorpusForward::hidden() { return impl_->hidden; }

Status CorpusForward::Impl::mix_window(std::uint32_t layer, const TokenWindow& window,
                                       const ExpertInputsSink& sink) {
  LayerState& state = state_of(layer);
  state.reset();
  for (std::uint64_t done = 0; done < window.count; done += layers.max_tokens()) {
    const std::size_t tokens = std::min<std::uint64_t>(layers.max_tokens(), window.count - done);
    const std::uint64_t first = window.first + done;
    Status status;
    const LayerSlice slice{&state, done, 0, tokens, &status};
    const std::span<const float> logits =
        layers.mix(layer, std::span(&slice, 1), tokens, hidden.data() + first * config.hidden_size);
    MOE_RETURN_IF_ERROR(status);
    const std::span<const float> inputs = layers.expert_inputs();
    MOE_RETURN_IF_ERROR(check_finite(layer, first, tokens, inputs, logits));
    const MoeWeights& moe = weights.layers[layer].moe;
    const std::vector<Assignment> chosen = moe.has_experts
                                               ? route(moe.routing, logits.data(), tokens,
                                                       config.num_experts, config.experts_per_token)
                                               : std::vector<Assignment>();
    MOE_RETURN_IF_ERROR(sink({first, tokens, inputs, chosen}));
    for (Assignment use : chosen) {
      use.token += static_cast<std::uint32_t>(first);
      routing.push_back(use);
    }
  }
  return Status::ok();
}

Status CorpusForward::mix(std::uint32_t layer, const ExpertInputsSink& sink) {
  Impl& s = *impl_;
  s.routing.clear();
  s.routing.reserve(s.hidden.size() / s.config.hidden_size * s.config.experts_per_token);
  for (const TokenWindow& window : s.windows) {
    MOE_RETURN_IF_ERROR(s.mix_window(layer, window, sink));
  }
  return Status::ok();
}

Status CorpusForward::add_experts(std::uint32_t layer,
                                  const std::function<void(std::size_t)>& done) {
  Impl& s = *impl_;
  const std::size_t width = s.config.hidden_size;
  std::sort(s.routing.begin(), s.routing.end(), [](const Assignment& a, const Assignment& b) {
    return a.expert != b.expert ? a.expert < b.expert : a.token < b.token;
  });
  const TokenInput input = [&](std::uint32_t token, float* out) {
    s.layers.expert_input(layer, s.hidden.data() + token * width, out);
  };
  Compute& compute = s.layers.compute();
  MixtureOfExperts& experts = s.layers.experts();
  std::vector<float> sums(s.hidden.size());
  MOE_RETURN_IF_ERROR(experts.add_routed(compute, s.weights.layers[layer].moe, layer, *s.store,
                                         s.routing, input, sums.data(), done));
  const std::uint64_t total = s.hidden.size() / width;
  for (std::uint64_t first = 0; first < total; first += s.layers.max_tokens()) {
    const std::size_t tokens = std::min<std::uint64_t>(s.layers.max_tokens(), total - first);
    s.layers.finish_network(layer, sums.data() + first * width, tokens,
                            s.hidden.data() + first * width);
  }
  return Status::ok();
}

Status CorpusForward::logits(std::uint64_t first, std::size_t tokens, std::vector<float>& out) {
  Impl& s = *impl_;
  const std::size_t width = s.config.hidden_size;
  const std::uint64_t rows = s.hidden.size() / width;
  if (first > rows || tokens > rows - first) {
    return invalid_argument("the corpus has only " + std::to_string(rows) + " tokens");
  }
  std::vector<float> normed(tokens * width);
  out.resize(tokens * s.config.vocab_size);
  Compute& compute = s.layers.compute();
  rms_norm(compute, s.hidden.data() + first * width, s.weights.final_norm, s.config.rms_norm_eps,
           tokens, width, normed.data());
  compute.matmul(s.weights.lm_head, normed.data(), tokens, out.data());
  cap_logits(compute.pool(), s.config.logit_cap, out);
  return Status::ok();
}

void CorpusForward::for_each(std::size_t count, FunctionRef<void(std::size_t)> body) {
  for_each_index(impl_->layers.compute().pool(), count, body);
}

void CorpusForward::set_routing(std::vector<Assignment> routing) {
  impl_->routing = std::move(routing);
}

ExpertStoreStats CorpusForward::expert_stats() const { return impl_->store->stats(); }
std::string_view CorpusForward::kernels_name() const {
  return impl_->layers.compute().kernels().name;
}

}  // namespace moepack
