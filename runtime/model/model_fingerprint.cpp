#include "runtime/model/model_fingerprint.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "formats/base/checksum.h"
#include "formats/weights/qcodec.h"

namespace moepack {
namespace {

// Rows of a matrix that stand in for all of them, spread evenly. What changes a matrix on purpose,
// other training or another rounding, changes nearly every row.
constexpr std::uint64_t kSampledRows = 8;

void add_shapes(const ModelConfig& c, std::vector<std::uint64_t>& numbers) {
  numbers.insert(numbers.end(),
                 {c.vocab_size, c.hidden_size, c.num_layers, c.num_experts, c.experts_per_token,
                  c.expert_width, c.shared_expert_width, c.num_heads, c.num_kv_heads, c.head_dim,
                  c.rotary_dim, c.linear_key_heads, c.linear_value_heads, c.linear_key_dim,
                  c.linear_value_dim, c.linear_conv_taps});
}

std::uint64_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

// Settings that came later are added only where they are set, with a number of their own, so that
// older models keep their fingerprints.
enum class LaterSetting : std::uint64_t {
  kBias = 1001,
  kOutputBias,
  kSinks,
  kWindow,
  kRouterBias,
  kUngatedShared,
  kExpertBiases,
  kActivation,
  kDenseWidth,
  kInterleaved,
  kYarn,
  kLatent,
  kOwnHeads,
  kScoreScale,
  kKeysAsValues,
  kValueNorm,
  kRouterNorm,
  kExpertScales,
  kBranchNorms,
  kOutputNorms,
  kOutputScale,
  kEmbeddingScale,
  kLogitCap,
};
void add_later(LaterSetting setting, std::initializer_list<std::uint64_t> values,
               std::vector<std::uint64_t>& numbers) {
  numbers.push_back(static_cast<std::uint64_t>(setting));
  numbers.insert(numbers.end(), values);
}

void add_mixer(const FullAttentionSpec& mixer, std::vector<std::uint64_t>& numbers) {
  numbers.insert(numbers.end(), {mixer.has_gate, static_cast<std::uint64_t>(mixer.norm),
                                 mixer.clip.has_value(), bits_of(mixer.clip.value_or(0.0F))});
  if (mixer.has_bias) add_later(LaterSetting::kBias, {}, numbers);
  if (mixer.has_output_bias) add_later(LaterSetting::kOutputBias, {}, numbers);
  if (mixer.has_sinks) add_later(LaterSetting::kSinks, {}, numbers);
  if (mixer.window.has_value()) add_later(LaterSetting::kWindow, {*mixer.window}, numbers);
  if (mixer.own_heads.has_value()) {
    const HeadSizes& heads = *mixer.own_heads;
    add_later(LaterSetting::kOwnHeads,
              {heads.heads, heads.kv_heads, heads.head_dim, heads.rotary_dim, heads.rotated_pairs,
               bits_of(heads.rope_theta)},
              numbers);
  }
  if (mixer.score_scale.has_value()) {
    add_later(LaterSetting::kScoreScale, {bits_of(*mixer.score_scale)}, numbers);
  }
  if (mixer.values_are_keys) add_later(LaterSetting::kKeysAsValues, {}, numbers);
  if (mixer.has_value_norm) add_later(LaterSetting::kValueNorm, {}, numbers);
}
void add_mixer(const GatedDeltaNetSpec&, std::vector<std::uint64_t>&) {}
void add_mixer(const LatentAttentionSpec& mixer, std::vector<std::uint64_t>& numbers) {
  numbers.push_back(mixer.has_query_rank);
}

void add_router(const SoftmaxRouterSpec& router, std::vector<std::uint64_t>& numbers) {
  numbers.push_back(router.renormalise);
  if (router.has_bias) add_later(LaterSetting::kRouterBias, {}, numbers);
  if (router.has_norm) add_later(LaterSetting::kRouterNorm, {}, numbers);
  if (router.has_expert_scales) add_later(LaterSetting::kExpertScales, {}, numbers);
}
void add_router(const SigmoidRouterSpec& router, std::vector<std::uint64_t>& numbers) {
  numbers.insert(numbers.end(),
                 {2, router.renormalise, bits_of(router.scale), router.groups, router.kept_groups});
}

void add_feed_forward(const ExpertsSpec& experts, std::vector<std::uint64_t>& numbers) {
  numbers.push_back(experts.has_shared_expert);
  if (!experts.has_shared_gate) add_later(LaterSetting::kUngatedShared, {}, numbers);
  if (experts.has_biases) add_later(LaterSetting::kExpertBiases, {}, numbers);
  if (experts.has_branch_norms) add_later(LaterSetting::kBranchNorms, {}, numbers);
  if (experts.activation == ExpertActivation::kSwiGlu) return;
  add_later(LaterSetting::kActivation,
            {static_cast<std::uint64_t>(experts.activation), bits_of(experts.activation_limit)},
            numbers);
}
void add_feed_forward(const DenseSpec&, std::vector<std::uint64_t>& numbers) {
  numbers.push_back(2);
}

void add_later_sizes(const ModelConfig& c, std::vector<std::uint64_t>& numbers) {
  if (c.dense_width != 0) add_later(LaterSetting::kDenseWidth, {c.dense_width}, numbers);
  if (c.embedding_scale != 1) {
    add_later(LaterSetting::kEmbeddingScale, {bits_of(c.embedding_scale)}, numbers);
  }
  if (c.logit_cap != 0) add_later(LaterSetting::kLogitCap, {bits_of(c.logit_cap)}, numbers);
  if (c.rope_interleaved) add_later(LaterSetting::kInterleaved, {}, numbers);
  if (c.yarn.has_value()) {
    const YarnSpec& y = *c.yarn;
    add_later(LaterSetting::kYarn,
              {bits_of(y.factor), bits_of(y.beta_fast), bits_of(y.beta_slow), y.original_positions,
               y.truncate, bits_of(y.attention_factor), bits_of(y.softmax_factor)},
              numbers);
  }
  if (c.kv_rank != 0) {
    add_later(LaterSetting::kLatent, {c.query_rank, c.kv_rank, c.value_dim}, numbers);
  }
}

// What the configuration says beside shapes: two models of the same weights may differ in it.
void add_layers(const ModelConfig& c, std::vector<std::uint64_t>& numbers) {
  numbers.insert(numbers.end(), {bits_of(c.rms_norm_eps), bits_of(c.rope_theta)});
  for (const LayerSpec& layer : c.layers) {
    numbers.push_back(layer.mixer.index());
    std::visit([&](const auto& mixer) { add_mixer(mixer, numbers); }, layer.mixer);
    std::visit([&](const auto& router) { add_router(router, numbers); }, layer.router);
    std::visit([&](const auto& network) { add_feed_forward(network, numbers); },
               layer.feed_forward);
    if (layer.has_output_norms) add_later(LaterSetting::kOutputNorms, {}, numbers);
    if (layer.has_output_scale) add_later(LaterSetting::kOutputScale, {}, numbers);
  }
  add_later_sizes(c, numbers);
}

// Adds loaded residents to a sum: vectors whole, matrices by their sampled rows, decoded.
class ResidentSample {
 public:
  explicit ResidentSample(ChecksumStream& sum) : sum_(sum) {}

  void add(const ModelWeights& weights) {
    add(weights.embedding);
    add(weights.lm_head);
    add(weights.final_norm);
    for (const LayerWeights& layer : weights.layers) {
      visit_tensors(layer, [this](const auto& tensor) { add(tensor); });
    }
  }

 private:
  void add(const std::vector<float>& values) { sum_.add(std::as_bytes(std::span(values))); }
  void add(const QMatrixView& matrix) {
    row_.resize(matrix.cols);
    const std::uint64_t count = std::min(matrix.rows, kSampledRows);
    for (std::uint64_t i = 0; i < count; ++i) {
      decode_row(matrix, count == 1 ? 0 : i * (matrix.rows - 1) / (count - 1), row_);
      add(row_);
    }
  }

  ChecksumStream& sum_;
  std::vector<float> row_;
};

}  // namespace

std::uint64_t model_fingerprint(const ModelDir& model, const ModelWeights& weights) {
  ChecksumStream sum;
  std::vector<std::uint64_t> numbers;
  add_shapes(model.config, numbers);
  add_layers(model.config, numbers);
  const ResidentConventions& conventions = model.residents.conventions;
  numbers.insert(numbers.end(), {model.residents.checksum, model.residents.data_size,
                                 static_cast<std::uint64_t>(conventions.norm),
                                 static_cast<std::uint64_t>(conventions.v_heads),
                                 static_cast<std::uint64_t>(conventions.a_log)});
  for (const ResidentOverlay& overlay : model.overlays) {
    const std::string name = overlay.manifest_name();
    sum.add(std::as_bytes(std::span(name)));
    numbers.insert(numbers.end(), {overlay.checksum, overlay.data_size});
  }
  for (std::uint32_t layer = 0; layer < model.pack.num_layers; ++layer) {
    for (std::uint32_t e = 0; e < model.pack.experts_of(layer); ++e) {
      const ExpertEntry& entry = model.pack.layers[layer].experts[e];
      numbers.insert(numbers.end(),
                     {entry.offset, model.pack.layout_of(layer, e).record_bytes, entry.checksum});
    }
  }
  sum.add(std::as_bytes(std::span(numbers)));
  if (!model.residents.has_checksum) ResidentSample(sum).add(weights);
  return sum.finish();
}

}  // namespace moepack
