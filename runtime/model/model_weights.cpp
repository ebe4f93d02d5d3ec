#include "runtime/model/model_weights.h"

#include <cmath>
#include <utility>

#include "formats/weights/qcodec.h"
#include "runtime/model/resident_tensors.h"
#include "runtime/model/v_head_order.h"

namespace moepack {
namespace {

using VHeads = ResidentConventions::VHeads;

// Finds tensors by name and checks their shapes. Keeps the first error, so that binding reads as a
// list; callers look at status() at the end.
class Binder {
 public:
  Binder(const ModelDir& model, ResidentTensors& tensors)
      : model_(model),
        tensors_(tensors),
        key_heads_(model.config.linear_key_heads),
        value_heads_(model.config.linear_value_heads) {}

  bool is_overlaid(const std::string& name) {
    const LoadedTensor* found = tensors_.find(name);
    return found != nullptr && found->is_overlay;
  }

  QMatrixView matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const LoadedTensor* found = find(name, rows, cols);
    if (found == nullptr) return {};
    const ResidentTensor& tensor = *found->tensor;
    QMatrixView view{.format = tensor.format, .rows = rows, .cols = cols};
    view.weight = found->data + tensor.weight_offset;
    if (tensor.bytes.scales != 0) view.scales = found->data + tensor.scales_offset;
    if (tensor.bytes.biases != 0) view.biases = found->data + tensor.biases_offset;
    return view;
  }

  // Rows from `first` on belong to the V heads; they are brought into `order` where they lie.
  QMatrixView v_matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                       std::uint64_t first, VHeads order) {
    LoadedTensor* found = find(name, rows, cols);
    if (found == nullptr) return {};
    const ResidentTensor& tensor = *found->tensor;
    for (const auto& [offset, bytes] : {std::pair{tensor.weight_offset, tensor.bytes.weight},
                                        std::pair{tensor.scales_offset, tensor.bytes.scales},
                                        std::pair{tensor.biases_offset, tensor.bytes.biases}}) {
      const std::uint64_t row_bytes = bytes / rows;
      reorder_v_heads(
          std::span(found->data + offset + first * row_bytes, bytes - first * row_bytes),
          key_heads_, value_heads_, found->v_heads, order);
    }
    found->v_heads = order;
    return matrix(name, rows, cols);
  }

  // The V-head order that a tensor has.
  VHeads v_heads(const std::string& name) {
    const LoadedTensor* found = tensors_.find(name);
    return found == nullptr ? model_.residents.conventions.v_heads : found->v_heads;
  }

  // All elements of a tensor of rows x cols, as float32.
  std::vector<float> values(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const QMatrixView view = matrix(name, rows, cols);
    if (view.weight == nullptr) return {};
    std::vector<float> out(rows * cols);
    for (std::uint64_t r = 0; r < rows; ++r) {
      decode_row(view, r, std::span(out).subspan(r * cols, cols));
    }
    return out;
  }

  // The same; from row `first` on they belong to the V heads and come in `order`.
  std::vector<float> v_values(const std::string& name, std::uint64_t rows, std::uint64_t cols,
                              std::uint64_t first, VHeads order) {
    std::vector<float> out = values(name, rows, cols);
    if (out.empty()) return out;
    reorder_v_heads(std::span(out).subspan(first * cols), key_heads_, value_heads_, v_heads(name),
                    order);
    return out;
  }

  // A norm's factor under the model's convention.
  std::vector<float> norm(const std::string& name, std::uint64_t size) {
    std::vector<float> out = values(name, 1, size);
    if (model_.residents.conventions.norm == ResidentConventions::Norm::kOnePlus) {
      for (float& w : out) w += 1.0F;
    }
    return out;
  }

  const Status& status() const { return status_; }

 private:
  LoadedTensor* find(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
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
  ResidentTensors& tensors_;
  std::size_t key_heads_;
  std::size_t value_heads_;
  Status status_;
};

FullAttentionWeights bind_attention(Binder& bind, const ModelConfig& c, const std::string& prefix) {
  const std::string p = prefix + "self_attn.";
  const std::uint64_t heads = std::uint64_t{c.num_heads} * c.head_dim;
  const std::uint64_t kv = std::uint64_t{c.num_kv_heads} * c.head_dim;
  FullAttentionWeights w;
  w.q = bind.matrix(p + "q_proj", 2 * heads, c.hidden_size);
  w.k = bind.matrix(p + "k_proj", kv, c.hidden_size);
  w.v = bind.matrix(p + "v_proj", kv, c.hidden_size);
  w.o = bind.matrix(p + "o_proj", c.hidden_size, heads);
  w.q_norm = bind.norm(p + "q_norm", c.head_dim);
  w.k_norm = bind.norm(p + "k_norm", c.head_dim);
  return w;
}

DeltaNetWeights bind_delta(Binder& bind, const ModelConfig& c, const ResidentConventions& how,
                           const std::string& prefix) {
  const std::string p = prefix + "linear_attn.";
  const std::uint64_t key = std::uint64_t{c.linear_key_heads} * c.linear_key_dim;
  const std::uint64_t value = std::uint64_t{c.linear_value_heads} * c.linear_value_dim;
  const std::uint64_t channels = 2 * key + value;
  const std::uint64_t heads = c.linear_value_heads;
  const VHeads order = bind.v_heads(p + "out_proj");
  DeltaNetWeights w;
  w.tiled_v_heads = order == VHeads::kTiled;
  w.in_qkv = bind.v_matrix(p + "in_proj_qkv", channels, c.hidden_size, 2 * key, order);
  w.in_z = bind.v_matrix(p + "in_proj_z", value, c.hidden_size, 0, order);
  w.in_b = bind.v_matrix(p + "in_proj_b", heads, c.hidden_size, 0, order);
  w.in_a = bind.v_matrix(p + "in_proj_a", heads, c.hidden_size, 0, order);
  w.out = bind.matrix(p + "out_proj", c.hidden_size, value);
  w.norm = bind.values(p + "norm", 1, c.linear_value_dim);  // plain in every source
  w.dt_bias = bind.v_values(p + "dt_bias", 1, heads, 0, order);
  w.decay_rate = bind.v_values(p + "A_log", 1, heads, 0, order);
  if (how.a_log == ResidentConventions::ALog::kLog) {
    for (float& a : w.decay_rate) a = -std::exp(a);
  }
  const std::vector<float> by_channel =
      bind.v_values(p + "conv1d", channels, c.linear_conv_taps, 2 * key, order);
  w.conv.resize(by_channel.size());
  for (std::size_t i = 0; i < by_channel.size(); ++i) {
    const std::size_t channel = i / c.linear_conv_taps;
    const std::size_t tap = i % c.linear_conv_taps;
    w.conv[tap * channels + channel] = by_channel[i];
  }
  return w;
}

MoeWeights bind_moe(Binder& bind, const ModelConfig& c, const std::string& prefix) {
  const std::string p = prefix + "mlp.";
  MoeWeights w;
  w.router = bind.matrix(p + "gate", c.num_experts, c.hidden_size);
  w.has_shared = c.shared_expert_width != 0;
  if (w.has_shared) {
    const std::uint64_t width = c.shared_expert_width;
    w.shared_gate = bind.matrix(p + "shared_expert.gate_proj", width, c.hidden_size);
    w.shared_up = bind.matrix(p + "shared_expert.up_proj", width, c.hidden_size);
    w.shared_down = bind.matrix(p + "shared_expert.down_proj", c.hidden_size, width);
    w.shared_expert_gate = bind.matrix(p + "shared_expert_gate", 1, c.hidden_size);
  }
  return w;
}

LayerWeights bind_layer(Binder& bind, const ModelConfig& c, const ResidentConventions& how,
                        std::uint32_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  LayerWeights w;
  w.type = c.layer_types[layer];
  w.input_norm = bind.norm(prefix + "input_layernorm", c.hidden_size);
  w.post_norm = bind.norm(prefix + "post_attention_layernorm", c.hidden_size);
  if (w.type == LayerType::kFullAttention) {
    w.attention = bind_attention(bind, c, prefix);
  } else {
    w.delta = bind_delta(bind, c, how, prefix);
  }
  w.moe = bind_moe(bind, c, prefix);
  return w;
}

}  // namespace

Result<ModelWeights> load_model_weights(const ModelDir& model) {
  const ModelConfig& config = model.config;
  MOE_ASSIGN_OR_RETURN(ResidentTensors tensors, ResidentTensors::load(model));
  Binder bind(model, tensors);
  ModelWeights weights;
  weights.embedding = bind.matrix("model.embed_tokens", config.vocab_size, config.hidden_size);
  const bool is_tied = config.tie_word_embeddings && !bind.is_overlaid("lm_head");
  weights.lm_head =
      is_tied ? weights.embedding : bind.matrix("lm_head", config.vocab_size, config.hidden_size);
  weights.final_norm = bind.norm("model.norm", config.hidden_size);
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(bind_layer(bind, config, model.residents.conventions, layer));
  }
  MOE_RETURN_IF_ERROR(bind.status());
  weights.data = tensors.take_buffers();
  return weights;
}

}  // namespace moepack
