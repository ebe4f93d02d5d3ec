#include "runtime/model/model_weights.h"

#include <cmath>
#include <utility>

#include "formats/config/architecture.h"
#include "formats/weights/qcodec.h"
#include "runtime/model/resident_tensors.h"
#include "runtime/model/v_head_order.h"

namespace moepack {
namespace {

using VHeads = ResidentConventions::VHeads;

// Finds the tensor of a role by the name that the architecture gives it, and checks that its shape
// is the architecture's. Keeps the first error, so that binding reads as a list; callers look at
// status() at the end. `layer` means nothing for modules of the whole model.
class Binder {
 public:
  Binder(const ModelDir& model, const Architecture& architecture, ResidentTensors& tensors)
      : model_(model),
        architecture_(architecture),
        tensors_(tensors),
        key_heads_(model.config.linear_key_heads),
        value_heads_(model.config.linear_value_heads) {}

  bool is_overlaid(ModuleRole role) {
    const ResidentRule* rule = find_rule(architecture_, role);
    const LoadedTensor* found = rule == nullptr ? nullptr : tensors_.find(rule->name);
    return found != nullptr && found->is_overlay;
  }

  QMatrixView matrix(ModuleRole role, std::uint32_t layer) {
    const Bound bound = find(role, layer);
    const LoadedTensor* found = bound.tensor;
    if (found == nullptr) return {};
    const ResidentTensor& tensor = *found->tensor;
    QMatrixView view{.format = tensor.format, .rows = bound.rows, .cols = bound.cols};
    for (Component c : stored_components(tensor.format)) {
      view.data[c] = found->at(tensor.offsets[c]);
    }
    return view;
  }

  // A matrix of which rows belong to V heads; they are brought into `order` where they lie.
  QMatrixView v_matrix(ModuleRole role, std::uint32_t layer, VHeads order) {
    const Bound bound = find(role, layer);
    LoadedTensor* found = bound.tensor;
    if (found == nullptr) return {};
    const std::uint64_t first = first_v_row(bound);
    const ResidentTensor& tensor = *found->tensor;
    for (Component c : stored_components(tensor.format)) {
      const std::uint64_t row_bytes = tensor.bytes[c] / bound.rows;
      const std::uint64_t before = first * row_bytes;
      reorder_v_heads(std::span(found->at(tensor.offsets[c]) + before, tensor.bytes[c] - before),
                      key_heads_, value_heads_, found->v_heads, order);
    }
    found->v_heads = order;
    return matrix(role, layer);
  }

  // The V-head order that a tensor has.
  VHeads v_heads(ModuleRole role, std::uint32_t layer) {
    const LoadedTensor* found = find(role, layer).tensor;
    return found == nullptr ? model_.residents.conventions.v_heads : found->v_heads;
  }

  // All elements of a tensor, as float32.
  std::vector<float> values(ModuleRole role, std::uint32_t layer) {
    const QMatrixView view = matrix(role, layer);
    if (view.codes() == nullptr) return {};
    std::vector<float> out(view.rows * view.cols);
    for (std::uint64_t r = 0; r < view.rows; ++r) {
      decode_row(view, r, std::span(out).subspan(r * view.cols, view.cols));
    }
    if (follows_norm_convention(role) &&
        model_.residents.conventions.norm == ResidentConventions::Norm::kOnePlus) {
      for (float& w : out) w += 1.0F;
    }
    return out;
  }

  // The same; those that belong to V heads come in `order`.
  std::vector<float> v_values(ModuleRole role, std::uint32_t layer, VHeads order) {
    std::vector<float> out = values(role, layer);
    if (out.empty()) return out;
    const Bound bound = find(role, layer);
    reorder_v_heads(std::span(out).subspan(first_v_row(bound) * bound.cols), key_heads_,
                    value_heads_, bound.tensor->v_heads, order);
    return out;
  }

  const Status& status() const { return status_; }

 private:
  // A tensor and the matrix that its rule's shape is.
  struct Bound {
    const ResidentRule* rule = nullptr;
    LoadedTensor* tensor = nullptr;  // nullptr: missing, or of another shape
    std::uint64_t rows = 1;
    std::uint64_t cols = 0;
  };

  Bound find(ModuleRole role, std::uint32_t layer) {
    Bound bound;
    bound.rule = find_rule(architecture_, role);
    if (bound.rule == nullptr) {
      const std::string file = (model_.path / "config.json").string();
      fail(unsupported(Where{.file = file}, "model type " + model_.config.model_type +
                                                " names no tensor for a part of its layers"));
      return bound;
    }
    const std::vector<std::uint64_t> shape = module_shape(*bound.rule, model_.config, layer);
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) bound.rows *= shape[i];
    bound.cols = shape.back();
    bound.tensor = checked(resident_module(*bound.rule, layer), bound.rows, bound.cols);
    return bound;
  }

  std::uint64_t first_v_row(const Bound& bound) const {
    const auto place = v_head_place(*bound.rule, model_.config);
    return place.has_value() ? place->first : 0;
  }

  LoadedTensor* checked(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    LoadedTensor* found = tensors_.find(name);
    if (found == nullptr) {
      const std::string file = (model_.path / kResidentManifestName).string();
      fail(not_found(Where{.file = file, .tensor = name}, "is missing",
                     "convert the checkpoint again"));
      return nullptr;
    }
    const ResidentTensor& tensor = *found->tensor;
    if (tensor.rows != rows || tensor.cols != cols) {
      // conv1d may state its unit dimension in either place: [C, 1, T] or [C, T, 1].
      if (tensor.rows * tensor.cols != rows * cols ||
          qformat_info(tensor.format.id).kind != QKind::kPlain || tensor.shape.size() != 3) {
        fail(corrupt(Where{.file = found->file, .tensor = name},
                     "is " + std::to_string(tensor.rows) + " x " + std::to_string(tensor.cols) +
                         ", config.json asks for " + std::to_string(rows) + " x " +
                         std::to_string(cols),
                     found->is_overlay ? "make the overlay again with moepack overlay" : ""));
        return nullptr;
      }
    }
    return found;
  }
  void fail(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
  }

  const ModelDir& model_;
  const Architecture& architecture_;
  ResidentTensors& tensors_;
  std::size_t key_heads_;
  std::size_t value_heads_;
  Status status_;
};

FullAttentionWeights bind_attention(Binder& bind, const FullAttentionSpec& spec,
                                    std::uint32_t layer) {
  FullAttentionWeights w;
  w.spec = spec;
  w.q = bind.matrix(ModuleRole::kQuery, layer);
  w.k = bind.matrix(ModuleRole::kKey, layer);
  if (!spec.values_are_keys) w.v = bind.matrix(ModuleRole::kValue, layer);
  w.o = bind.matrix(ModuleRole::kAttentionOutput, layer);
  if (spec.norm != QueryKeyNorm::kNone) {
    w.q_norm = bind.values(ModuleRole::kQueryNorm, layer);
    w.k_norm = bind.values(ModuleRole::kKeyNorm, layer);
  }
  if (spec.has_bias) {
    w.q_bias = bind.values(ModuleRole::kQueryBias, layer);
    w.k_bias = bind.values(ModuleRole::kKeyBias, layer);
    w.v_bias = bind.values(ModuleRole::kValueBias, layer);
  }
  if (spec.has_output_bias) w.o_bias = bind.values(ModuleRole::kAttentionOutputBias, layer);
  if (spec.has_sinks) w.sinks = bind.values(ModuleRole::kSinks, layer);
  return w;
}

DeltaNetWeights bind_delta(Binder& bind, const ModelConfig& c, const ResidentConventions& how,
                           std::uint32_t layer) {
  const VHeads order = bind.v_heads(ModuleRole::kDeltaOut, layer);
  DeltaNetWeights w;
  w.tiled_v_heads = order == VHeads::kTiled;
  w.in_qkv = bind.v_matrix(ModuleRole::kDeltaQkv, layer, order);
  w.in_z = bind.v_matrix(ModuleRole::kDeltaZ, layer, order);
  w.in_b = bind.v_matrix(ModuleRole::kDeltaBeta, layer, order);
  w.in_a = bind.v_matrix(ModuleRole::kDeltaAlpha, layer, order);
  w.out = bind.matrix(ModuleRole::kDeltaOut, layer);
  w.norm = bind.values(ModuleRole::kDeltaNorm, layer);
  w.dt_bias = bind.v_values(ModuleRole::kDeltaDtBias, layer, order);
  w.decay_rate = bind.v_values(ModuleRole::kDeltaALog, layer, order);
  if (how.a_log == ResidentConventions::ALog::kLog) {
    for (float& a : w.decay_rate) a = -std::exp(a);
  }
  const std::vector<float> by_channel = bind.v_values(ModuleRole::kDeltaConv, layer, order);
  const std::size_t channels = by_channel.size() / c.linear_conv_taps;
  w.conv.resize(by_channel.size());
  for (std::size_t i = 0; i < by_channel.size(); ++i) {
    const std::size_t channel = i / c.linear_conv_taps;
    const std::size_t tap = i % c.linear_conv_taps;
    w.conv[tap * channels + channel] = by_channel[i];
  }
  return w;
}

LatentAttentionWeights bind_latent(Binder& bind, const LatentAttentionSpec& spec,
                                   std::uint32_t layer) {
  LatentAttentionWeights w;
  w.spec = spec;
  if (spec.has_query_rank) {
    w.q_down = bind.matrix(ModuleRole::kQueryDown, layer);
    w.q_down_norm = bind.values(ModuleRole::kQueryDownNorm, layer);
  }
  w.q = bind.matrix(spec.has_query_rank ? ModuleRole::kQueryUp : ModuleRole::kQuery, layer);
  w.kv_down = bind.matrix(ModuleRole::kKeyValueDown, layer);
  w.kv_norm = bind.values(ModuleRole::kKeyValueNorm, layer);
  w.kv_up = bind.matrix(ModuleRole::kKeyValueUp, layer);
  w.o = bind.matrix(ModuleRole::kAttentionOutput, layer);
  return w;
}

void bind_router(Binder& bind, const RouterSpec& spec, std::uint32_t layer, MoeWeights& w) {
  w.routing = spec;
  w.router = bind.matrix(ModuleRole::kRouter, layer);
  const auto* softmax = std::get_if<SoftmaxRouterSpec>(&spec);
  if (softmax == nullptr) {
    w.routing.correction = bind.values(ModuleRole::kRouterCorrection, layer);
    return;
  }
  if (softmax->has_bias) w.router_bias = bind.values(ModuleRole::kRouterBias, layer);
  if (softmax->has_norm) {
    w.router_norm = bind.values(ModuleRole::kRouterNorm, layer);
    const float root = std::sqrt(static_cast<float>(w.router_norm.size()));
    for (float& factor : w.router_norm) factor /= root;
  }
  if (softmax->has_expert_scales) {
    w.routing.expert_scales = bind.values(ModuleRole::kExpertScales, layer);
  }
}

MoeWeights bind_experts(Binder& bind, const LayerSpec& spec, std::uint32_t layer) {
  const auto& experts = std::get<ExpertsSpec>(spec.feed_forward);
  MoeWeights w;
  bind_router(bind, spec.router, layer, w);
  w.activation = experts.activation;
  w.activation_limit = experts.activation_limit;
  if (experts.has_biases) {
    w.gate_bias = bind.values(ModuleRole::kExpertGateBias, layer);
    w.up_bias = bind.values(ModuleRole::kExpertUpBias, layer);
    w.down_bias = bind.values(ModuleRole::kExpertDownBias, layer);
  }
  w.has_shared = experts.has_shared_expert;
  w.has_shared_gate = experts.has_shared_gate;
  if (!w.has_shared) return w;
  w.shared_gate = bind.matrix(ModuleRole::kSharedGate, layer);
  w.shared_up = bind.matrix(ModuleRole::kSharedUp, layer);
  w.shared_down = bind.matrix(ModuleRole::kSharedDown, layer);
  if (w.has_shared_gate) {
    w.shared_expert_gate = bind.matrix(ModuleRole::kSharedExpertGate, layer);
  }
  if (experts.has_branch_norms) {
    w.shared_input_norm = bind.values(ModuleRole::kSharedInputNorm, layer);
    w.shared_output_norm = bind.values(ModuleRole::kSharedOutputNorm, layer);
    w.routed_output_norm = bind.values(ModuleRole::kRoutedOutputNorm, layer);
  }
  return w;
}

MoeWeights bind_dense(Binder& bind, std::uint32_t layer) {
  MoeWeights w;
  w.has_experts = false;
  w.has_shared = true;
  w.has_shared_gate = false;
  w.shared_gate = bind.matrix(ModuleRole::kDenseGate, layer);
  w.shared_up = bind.matrix(ModuleRole::kDenseUp, layer);
  w.shared_down = bind.matrix(ModuleRole::kDenseDown, layer);
  return w;
}

LayerWeights bind_layer(Binder& bind, const ModelConfig& c, const ResidentConventions& how,
                        std::uint32_t layer) {
  const LayerSpec& spec = c.layers[layer];
  LayerWeights w;
  w.input_norm = bind.values(ModuleRole::kInputNorm, layer);
  w.post_norm = bind.values(ModuleRole::kPostNorm, layer);
  if (const auto* attention = std::get_if<FullAttentionSpec>(&spec.mixer)) {
    w.mixer = bind_attention(bind, *attention, layer);
  } else if (const auto* latent = std::get_if<LatentAttentionSpec>(&spec.mixer)) {
    w.mixer = bind_latent(bind, *latent, layer);
  } else {
    w.mixer = bind_delta(bind, c, how, layer);
  }
  w.moe = has_experts(spec) ? bind_experts(bind, spec, layer) : bind_dense(bind, layer);
  if (spec.has_output_norms) {
    w.mixer_norm = bind.values(ModuleRole::kMixerOutputNorm, layer);
    w.moe.output_norm = bind.values(ModuleRole::kNetworkOutputNorm, layer);
  }
  if (spec.has_output_scale) w.moe.output_scale = bind.values(ModuleRole::kOutputScale, layer);
  return w;
}

}  // namespace

Result<ModelWeights> load_model_weights(const ModelDir& model, std::size_t threads) {
  const ModelConfig& config = model.config;
  MOE_ASSIGN_OR_RETURN(const Architecture* architecture, architecture_of(config));
  MOE_ASSIGN_OR_RETURN(ResidentTensors tensors, ResidentTensors::load(model, threads));
  Binder bind(model, *architecture, tensors);
  ModelWeights weights;
  weights.embedding = bind.matrix(ModuleRole::kEmbedding, 0);
  const bool is_tied = config.tie_word_embeddings && !bind.is_overlaid(ModuleRole::kOutputHead);
  weights.lm_head = is_tied ? weights.embedding : bind.matrix(ModuleRole::kOutputHead, 0);
  weights.final_norm = bind.values(ModuleRole::kFinalNorm, 0);
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(bind_layer(bind, config, model.residents.conventions, layer));
  }
  MOE_RETURN_IF_ERROR(bind.status());
  weights.data = tensors.take_buffers();
  return weights;
}

}  // namespace moepack
