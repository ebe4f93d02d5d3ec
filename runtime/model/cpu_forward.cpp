#include "runtime/model/cpu_forward.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/byte_counts.h"
#include "runtime/model/exact_bf16.h"
#include "runtime/model/expert_lookahead.h"
#include "runtime/model/finite.h"
#include "runtime/model/layer_forward.h"
#include "runtime/model/layer_state.h"
#include "runtime/model/resident_panels.h"
#include "runtime/model/thread_pool.h"
#include "runtime/store/out_of_memory.h"

namespace moepack {
namespace {

constexpr std::string_view kStateList = "the list of a sequence's states";
// Values of which a task looks whether they are finite: those of few tokens at once, as one thread
// has them in its caches; logits by who made them.
constexpr std::size_t kInputsPerTask = std::size_t{32} * 1024;
constexpr std::size_t kLogitsPerTask = std::size_t{4} * 1024;

class CpuState final : public SequenceState {
 public:
  static Result<std::unique_ptr<SequenceState>> create(const ModelConfig& config,
                                                       std::uint64_t context,
                                                       const StateForm& form) {
    std::unique_ptr<CpuState> state(new CpuState());
    state->layers_.reserve(config.layers.size());
    for (const LayerSpec& spec : config.layers) {
      MOE_ASSIGN_OR_RETURN(LayerState layer, LayerState::create(config, spec, context, form));
      state->layers_.push_back(std::move(layer));
    }
    return std::unique_ptr<SequenceState>(std::move(state));
  }

  LayerState& layer(std::uint32_t index) { return layers_[index]; }

  void reset() override {
    for (LayerState& layer : layers_) layer.reset();
  }

  Result<std::unique_ptr<SequenceState>> copy(std::uint64_t tokens) const override {
    return or_out_of_memory(kStateList, layers_.size() * sizeof(LayerState),
                            [&] { return copy_layers(tokens); });
  }

  bool has_recurrent() const override {
    return std::any_of(layers_.begin(), layers_.end(),
                       [](const LayerState& layer) { return layer.kv == nullptr; });
  }

  DeltaForm delta_form() const override {
    const bool has_rows = std::any_of(layers_.begin(), layers_.end(), [](const LayerState& layer) {
      return !layer.rows.decays.empty();
    });
    return has_rows ? DeltaForm::kBlocks : DeltaForm::kTokens;
  }

  std::uint64_t memory_bytes() const override {
    std::uint64_t bytes = 0;
    for (const LayerState& layer : layers_) bytes += layer.memory_bytes();
    return bytes;
  }

  std::uint64_t saved_bytes(std::uint64_t tokens) const override {
    std::uint64_t bytes = 0;
    for (const LayerState& layer : layers_) bytes = capped_sum(bytes, layer.saved_bytes(tokens));
    return bytes;
  }

  Status save(std::uint64_t tokens, std::span<std::byte> bytes) const override {
    for (const LayerState& layer : layers_) {
      const std::size_t size = layer.saved_bytes(tokens);
      layer.save(tokens, bytes.first(size));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }

  Status load(std::uint64_t tokens, std::span<const std::byte> bytes) override {
    for (LayerState& layer : layers_) {
      const std::size_t size = layer.saved_bytes(tokens);
      MOE_RETURN_IF_ERROR(layer.load(tokens, bytes.first(size)));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }

  std::uint64_t recurrent_bytes(std::uint64_t tokens) const override {
    std::uint64_t bytes = 0;
    for (const LayerState& layer : layers_) {
      if (layer.kv == nullptr) bytes = capped_sum(bytes, layer.saved_bytes(tokens));
    }
    return bytes;
  }

  Status save_recurrent(std::uint64_t tokens, std::span<std::byte> bytes) const override {
    for (const LayerState& layer : layers_) {
      if (layer.kv != nullptr) continue;
      const std::size_t size = layer.saved_bytes(tokens);
      layer.save(tokens, bytes.first(size));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }

  Status load_recurrent(std::uint64_t tokens, std::span<const std::byte> bytes) override {
    for (LayerState& layer : layers_) {
      if (layer.kv != nullptr) continue;
      const std::size_t size = layer.saved_bytes(tokens);
      MOE_RETURN_IF_ERROR(layer.load(tokens, bytes.first(size)));
      bytes = bytes.subspan(size);
    }
    return Status::ok();
  }

 private:
  CpuState() = default;
  Result<std::unique_ptr<SequenceState>> copy_layers(std::uint64_t tokens) const {
    std::unique_ptr<CpuState> other(new CpuState());
    other->layers_.reserve(layers_.size());
    for (const LayerState& layer : layers_) {
      MOE_ASSIGN_OR_RETURN(LayerState copied, layer.copy(tokens));
      other->layers_.push_back(std::move(copied));
    }
    return std::unique_ptr<SequenceState>(std::move(other));
  }

  std::vector<LayerState> layers_;
};

class CpuForward final : public ForwardBackend {
 public:
  CpuForward(const ModelConfig& config, ModelWeights weights, std::unique_ptr<ExpertStore> store,
             const Kernels& kernels, const ActivationLimits& limits, const StateForm& form,
             Activations activations, CpuForwardExtras extras)
      : config_(config),
        weights_(std::move(weights)),
        store_(std::move(store)),
        recorder_(std::move(extras.recorder)),
        car_(extras.car),
        limits_(limits),
        form_(form),
        layers_(config_, weights_, kernels, limits, std::move(activations)),
        ahead_(config_, layers_.activations(), *store_, extras.lookahead,
               extras.is_lookahead_tried),
        usage_(config_.num_layers, config_.num_experts) {}

  std::string_view name() const override { return layers_.kernels().name; }
  std::string_view bits() const override { return layers_.kernels().bits; }
  std::size_t max_tokens() const override { return limits_.tokens; }
  std::size_t max_logit_rows() const override { return limits_.logit_rows; }

  Result<std::unique_ptr<SequenceState>> make_state() override {
    return make_cpu_state(config_, limits_.context, form_);
  }

  Status forward(std::span<const std::int32_t> tokens, std::span<BatchSlice> slices,
                 const WantedRows& /*wanted*/, ForwardObserver* observer) override {
    const Clock::time_point start = Clock::now();
    if (recorder_ != nullptr) MOE_RETURN_IF_ERROR(recorder_->begin_pass(tokens.size()));
    usage_.begin_pass();
    ahead_.begin_pass(tokens.size());
    embed(tokens, observer);
    Status status;
    for (std::uint32_t layer = 0; layer < config_.num_layers && status.is_ok(); ++layer) {
      stage_times().at_layer(layer);
      if (recorder_ != nullptr) recorder_->begin_layer();
      mix(layer, slices);
      if (!has_live(slices)) break;
      status = add_network(layer, slices);
    }
    ahead_.release_all();
    ahead_.end_pass(tokens.size(), seconds_since(start));
    stage_times().at_layer(TimelineEvent::kNone);
    stage_times().note_batch(tokens.size(), start);
    return status;
  }

  Result<RowLogits> logits(std::span<const std::size_t> rows) override {
    const StageScope stage(stage_times(), Stage::kHead);
    const Clock::time_point start = Clock::now();
    const std::span<const float> normed = layers_.final_norm(rows, hidden());
    if (observer_ != nullptr) observer_->on_final_norm(rows.size(), normed);
    const std::span<float> out =
        layers_.activations().logits.first(rows.size() * config_.vocab_size);
    Compute& compute = layers_.compute();
    compute.matmul(weights_.lm_head, normed.data(), rows.size(), out.data());
    cap_logits(compute.pool(), config_.logit_cap, out);
    // Most by the threads that have them in their caches.
    const bool are_finite = all_finite(compute.pool(), out, kLogitsPerTask);
    if (recorder_ != nullptr) recorder_->add_head(seconds_since(start));
    return RowLogits{.values = out, .are_finite = are_finite};
  }

  ExpertUsageMap expert_usage() const override {
    ExpertUsageMap map = usage_.read();
    map.is_resident.resize(map.warmth.size());
    for (std::uint32_t layer = 0; layer < map.layers; ++layer) {
      const std::size_t first = std::size_t{layer} * map.experts;
      store_->find_resident(layer, std::span(map.is_resident).subspan(first, map.experts));
    }
    return map;
  }
  ExpertStoreStats expert_stats() const override { return store_->stats(); }
  RoutingAgreement routing_agreement() override { return layers_.experts().agreement(); }
  Status finish_recording() override {
    return recorder_ == nullptr ? Status::ok() : recorder_->finish();
  }
  void reset_stats() override {
    store_->reset_stats();
    layers_.experts().agreement() = {};
  }
  StageTimes& stage_times() override { return layers_.compute().times(); }

 private:
  static bool has_live(std::span<const BatchSlice> slices) {
    return std::any_of(slices.begin(), slices.end(),
                       [](const BatchSlice& slice) { return slice.status.is_ok(); });
  }

  void embed(std::span<const std::int32_t> tokens, ForwardObserver* observer) {
    tokens_ = tokens.size();
    observer_ = observer;
    {
      const StageScope stage(stage_times(), Stage::kEmbed);
      layers_.embed(tokens, hidden());
    }
    if (observer_ != nullptr) observer_->on_embedding(tokens_, hidden_rows());
  }

  // The feed-forward network of a layer.
  Status add_network(std::uint32_t layer, std::span<BatchSlice> slices) {
    const bool has_experts = weights_.layers[layer].moe.has_experts;
    note_rows();
    if (has_experts) route(layer);
    expect_next(layer);
    if (!has_experts) {
      add_dense(layer);
      return Status::ok();
    }
    if (recorder_ != nullptr) recorder_->routed(store_->stats());
    const Status status = add_experts(layer, slices);
    release_ahead(layer);
    const std::span<const ExpertGroup> groups = layers_.experts().groups();
    usage_.add(layer, groups);
    if (recorder_ != nullptr && status.is_ok()) {
      recorder_->end_layer(layer, groups, store_->stats());
    }
    return status;
  }

  // No expert is read meanwhile: what comes next may be.
  void add_dense(std::uint32_t layer) {
    ahead_.start();
    layers_.add_dense(layer, hidden());
    if (observer_ != nullptr) observer_->on_layer(layer, tokens_, hidden_rows());
    if (recorder_ != nullptr) recorder_->end_dense_layer();
  }

  // The mixer of every slice that goes on, and the router's logits.
  void mix(std::uint32_t layer, std::span<BatchSlice> slices) {
    live_.clear();
    for (BatchSlice& slice : slices) {
      if (!slice.status.is_ok()) continue;
      auto& state = static_cast<CpuState&>(*slice.state);
      live_.push_back(
          {&state.layer(layer), slice.position, slice.first, slice.count, &slice.status});
    }
    const std::span<const float> logits = layers_.mix(layer, live_, tokens_, hidden());
    if (observer_ != nullptr && !logits.empty()) observer_->on_router(layer, tokens_, logits);
    // Rows of other slices are zero.
    ThreadPool& pool = layers_.compute().pool();
    if (all_finite(pool, layers_.expert_inputs(), kInputsPerTask) &&
        all_finite(pool, logits, kInputsPerTask)) {
      return;
    }
    for (const LayerSlice& slice : live_) {
      if (slice.is_live()) check(layer, slice, logits);
    }
  }

  void note_rows() {
    rows_.clear();
    for (const LayerSlice& slice : live_) {
      if (slice.is_live()) rows_.push_back({.first = slice.first, .count = slice.count});
    }
  }

  void route(std::uint32_t layer) {
    const StageScope stage(stage_times(), Stage::kRouter);
    const Routing& routing = weights_.layers[layer].moe.routing;
    MixtureOfExperts& experts = layers_.experts();
    if (!car_.is_on()) {
      (void)experts.choose(layers_.compute(), routing, rows_);
      return;
    }
    is_resident_.resize(config_.num_experts);
    store_->find_resident(layer, is_resident_);
    (void)experts.choose_cached(layers_.compute(), routing, rows_, car_, is_resident_);
  }

  // Waits for what was read ahead for nothing and is still on its way.
  void release_ahead(std::uint32_t layer) {
    const StageScope stage(stage_times(), Stage::kExpertWait);
    ahead_.release(layer);
  }

  // What the layer after this one will probably use.
  void expect_next(std::uint32_t layer) {
    if (layer + 1 == config_.num_layers) return;
    ahead_.expect(layers_.compute(), weights_.layers[layer + 1], layer + 1, rows_, hidden());
  }

  Status add_experts(std::uint32_t layer, std::span<BatchSlice> slices) {
    const auto read_ahead = [this] { ahead_.start(); };
    MOE_RETURN_IF_ERROR(layers_.add_experts(layer, *store_, hidden(), read_ahead));
    for (const FailedRow& failed : layers_.experts().failed_rows()) {
      for (BatchSlice& slice : slices) {
        const bool holds = failed.row >= slice.first && failed.row - slice.first < slice.count;
        if (holds && slice.status.is_ok()) slice.status = failed.status;
      }
    }
    if (observer_ != nullptr) observer_->on_layer(layer, tokens_, hidden_rows());
    return Status::ok();
  }

  // Ends a slice whose activations are not finite. `logits`: [tokens, experts], or none.
  void check(std::uint32_t layer, const LayerSlice& slice, std::span<const float> logits) {
    const std::size_t width = config_.hidden_size;
    const std::size_t experts = logits.empty() ? 0 : config_.num_experts;
    *slice.status =
        check_finite(layer, slice.position, slice.count,
                     layers_.expert_inputs().subspan(slice.first * width, slice.count * width),
                     logits.subspan(slice.first * experts, slice.count * experts));
    if (!slice.is_live()) layers_.silence(slice.first, slice.count);
  }

  float* hidden() { return layers_.activations().hidden.data(); }
  std::span<const float> hidden_rows() { return {hidden(), tokens_ * config_.hidden_size}; }

  ModelConfig config_;
  ModelWeights weights_;
  std::unique_ptr<ExpertStore> store_;
  std::unique_ptr<RoutingRecorder> recorder_;  // null without --trace
  CacheAwareRouting car_;
  std::vector<std::uint8_t> is_resident_;  // of the layer's experts, with car_
  ActivationLimits limits_;
  StateForm form_;
  LayerForward layers_;
  ExpertLookahead ahead_;
  ExpertUsage usage_;
  std::size_t tokens_ = 0;               // of the batch
  ForwardObserver* observer_ = nullptr;  // of the batch
  std::vector<LayerSlice> live_;         // of the layer, when mix() began
  std::vector<RowRange> rows_;           // of the layer, that go on to experts
};

}  // namespace

Result<std::unique_ptr<SequenceState>> make_cpu_state(const ModelConfig& config,
                                                      std::uint64_t context,
                                                      const StateForm& form) {
  return or_out_of_memory(kStateList, config.layers.size() * sizeof(LayerState),
                          [&] { return CpuState::create(config, context, form); });
}

Result<std::unique_ptr<ForwardBackend>> make_cpu_forward(
    const ModelConfig& config, ModelWeights weights, std::unique_ptr<ExpertStore> store,
    const Kernels& kernels, const ActivationLimits& limits, KvEncoding kv_encoding,
    CpuForwardExtras extras) {
  MOE_ASSIGN_OR_RETURN(Activations activations, Activations::create(config, limits));
  MOE_RETURN_IF_ERROR(or_out_of_memory("rows of a panel", std::nullopt, [&] {
    ThreadPool pool(limits.threads);
    narrow_exact_floats(weights, pool);
    if (limits.activations != ActivationType::kFloat32) put_in_panels(weights, kernels.codes, pool);
    return Status::ok();
  }));
  return std::unique_ptr<ForwardBackend>(
      new CpuForward(config, std::move(weights), std::move(store), kernels, limits,
                     state_form(kernels, kv_encoding), std::move(activations), std::move(extras)));
}

}  // namespace moepack
