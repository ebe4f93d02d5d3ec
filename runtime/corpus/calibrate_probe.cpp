#include "runtime/corpus/calibrate_probe.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "formats/base/dtype.h"
#include "formats/base/elapsed.h"
#include "formats/calibration/calibration.h"

namespace moepack {
namespace {

constexpr std::size_t kProbeTokens = 512;
constexpr std::uint32_t kProbeExperts = 4;

// The cost of one token, or of reading one expert, in one layer; without experts nothing is read
// and nothing written.
struct LayerCost {
  double mix = 0;
  double shared = 0;  // and everything else that is done once a token
  double use = 0;     // of one expert
  double read = 0;    // of one byte of a record
  double write = 0;   // compression
  double share = 0;   // compressed bytes per byte
};

// Layers that cost the same.
struct LayerKind {
  LayerType type;
  bool has_experts;
  bool operator==(const LayerKind&) const = default;
};
LayerKind kind_of(const LayerSpec& layer) { return {layer_type(layer), has_experts(layer)}; }

// A routing in which every token uses each of the first `experts` experts.
std::vector<Assignment> all_use(std::uint32_t experts, std::size_t tokens) {
  std::vector<Assignment> routing;
  for (std::uint32_t e = 0; e < experts; ++e) {
    for (std::uint32_t t = 0; t < tokens; ++t) {
      routing.push_back({.expert = e, .token = t, .slot = 0, .weight = 0.1F});
    }
  }
  return routing;
}

class Probe {
 public:
  Probe(const ModelDir& model, CorpusForward& corpus, std::span<const std::int32_t> tokens)
      : model_(model), corpus_(corpus), tokens_(tokens) {}

  // Measures twice and counts the second time, because the first one waits for memory.
  Result<LayerCost> measure(std::uint32_t layer) {
    LayerCost cost;
    for (int i = 0; i < 2; ++i) {
      MOE_RETURN_IF_ERROR(corpus_.start(tokens_, {{0, tokens_.size()}}));
      MOE_RETURN_IF_ERROR(mix(layer, cost));
      MOE_RETURN_IF_ERROR(add_experts(layer, i == 0, cost));
    }
    return cost;
  }

 private:
  Status mix(std::uint32_t layer, LayerCost& cost) {
    LayerActivations a;
    a.hidden_size = model_.config.hidden_size;
    a.experts_per_token = model_.config.experts_per_token;
    Clock::time_point start = Clock::now();
    MOE_RETURN_IF_ERROR(corpus_.mix(layer, [&](const ExpertInputs& given) {
      a.tokens += given.tokens;
      for (const float value : given.inputs) a.inputs.push_back(f32_to_bf16(value));
      for (const Assignment& use : given.routing) {
        a.experts.push_back(static_cast<std::uint16_t>(use.expert));
        a.weights.push_back(use.weight);
      }
      return Status::ok();
    }));
    const auto count = static_cast<double>(a.tokens);
    cost.mix = seconds_since(start) / count;
    if (model_.pack.experts_of(layer) == 0) return Status::ok();
    start = Clock::now();
    MOE_ASSIGN_OR_RETURN(const std::uint64_t size, compressed_layer_size(a));
    cost.write = seconds_since(start) / count;
    const auto raw = static_cast<double>(2 * a.inputs.size() + 6 * a.experts.size());
    cost.share = std::min(1.0, static_cast<double>(size) / raw);
    return Status::ok();
  }

  Status add_experts(std::uint32_t layer, bool first, LayerCost& cost) {
    const auto count = static_cast<double>(tokens_.size());
    corpus_.set_routing({});
    Clock::time_point start = Clock::now();
    MOE_RETURN_IF_ERROR(corpus_.add_experts(layer, [](std::size_t) {}));
    cost.shared = seconds_since(start) / count;
    if (model_.pack.experts_of(layer) == 0) return Status::ok();
    const std::uint32_t experts = std::min(kProbeExperts, model_.config.num_experts);
    corpus_.set_routing(all_use(experts, tokens_.size()));
    const ExpertStoreStats before = corpus_.expert_stats();
    start = Clock::now();
    MOE_RETURN_IF_ERROR(corpus_.add_experts(layer, [](std::size_t) {}));
    const ExpertStoreStats after = corpus_.expert_stats();
    const double reading = after.read_seconds - before.read_seconds;
    const double computing = seconds_since(start) - reading - cost.shared * count;
    cost.use = std::max(0.0, computing) / (count * experts);
    // The experts are read only the first time.
    const auto bytes = static_cast<double>(after.bytes_read - before.bytes_read);
    if (first && bytes > 0) cost.read = reading / bytes;
    return Status::ok();
  }

  const ModelDir& model_;
  CorpusForward& corpus_;
  std::span<const std::int32_t> tokens_;
};

std::uint64_t layer_record_bytes(const PackManifest& pack, std::uint32_t layer) {
  std::uint64_t bytes = 0;
  for (std::uint32_t e = 0; e < pack.experts_of(layer); ++e) {
    bytes += pack.layout_of(layer, e).record_bytes;
  }
  return bytes;
}

}  // namespace

Result<CalibrateEstimate> estimate_calibration(const ModelDir& model, const CorpusOptions& options,
                                               std::span<const std::int32_t> tokens,
                                               const CalibrateWork& work) {
  tokens = tokens.first(std::min(kProbeTokens, tokens.size()));
  MOE_ASSIGN_OR_RETURN(const std::unique_ptr<CorpusForward> corpus,
                       CorpusForward::open(model, options));
  Probe probe(model, *corpus, tokens);
  const ModelConfig& c = model.config;
  CalibrateEstimate estimate;
  const auto count = static_cast<double>(work.tokens);
  const double probe_count = static_cast<double>(work.probe_work) / c.num_layers;
  double share = 0;
  std::vector<std::pair<LayerKind, LayerCost>> costs;
  for (std::uint32_t layer = 0; layer < c.num_layers; ++layer) {
    const LayerKind kind = kind_of(c.layers[layer]);
    auto known = std::find_if(costs.begin(), costs.end(),
                              [&](const auto& cost) { return cost.first == kind; });
    if (known == costs.end()) {
      MOE_ASSIGN_OR_RETURN(const LayerCost measured, probe.measure(layer));
      known = costs.insert(costs.end(), {kind, measured});
    }
    const LayerCost& cost = known->second;
    share += cost.share / c.num_layers;
    const double token = cost.mix + cost.shared + c.experts_per_token * cost.use;
    const double pass = cost.read * static_cast<double>(layer_record_bytes(model.pack, layer));
    if (work.probe_work > 0) estimate.seconds += probe_count * token + pass;
    if (layer < c.num_layers - work.layers_left) continue;
    estimate.seconds += count * (token + cost.write) + pass;
  }
  estimate.compressed_share = share;
  return estimate;
}

}  // namespace moepack
