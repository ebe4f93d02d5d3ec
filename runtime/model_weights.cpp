#include "runtime/model_weights.h"

#include <algorithm>
#include <cmath>

#include "formats/checksum.h"
#include "formats/qcodec.h"
#include "formats/resident_files.h"

namespace moepack {
namespace {

// Finds tensors by name and checks their shapes. Keeps the first error, so that binding reads as a
// list; callers look at status() at the end.
class Binder {
 public:
  Binder(const ResidentManifest& manifest, const std::byte* data, std::string file)
      : manifest_(manifest), data_(data), file_(std::move(file)) {}

  QMatrixView matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const ResidentTensor* tensor = find(name, rows, cols);
    if (tensor == nullptr) return {};
    QMatrixView view{.format = tensor->format, .rows = rows, .cols = cols};
    view.weight = data_ + tensor->weight_offset;
    if (tensor->bytes.scales != 0) view.scales = data_ + tensor->scales_offset;
    if (tensor->bytes.biases != 0) view.biases = data_ + tensor->biases_offset;
    return view;
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

  // A norm's factor under the model's convention.
  std::vector<float> norm(const std::string& name, std::uint64_t size) {
    std::vector<float> out = values(name, 1, size);
    if (manifest_.conventions.norm == ResidentConventions::Norm::kOnePlus) {
      for (float& w : out) w += 1.0F;
    }
    return out;
  }

  const Status& status() const { return status_; }

 private:
  const ResidentTensor* find(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
    const auto found = std::lower_bound(
        manifest_.tensors.begin(), manifest_.tensors.end(), name,
        [](const ResidentTensor& t, const std::string& wanted) { return t.name < wanted; });
    if (found == manifest_.tensors.end() || found->name != name) {
      fail(not_found(Where{.file = file_, .tensor = name}, "is missing",
                     "convert the checkpoint again"));
      return nullptr;
    }
    if (found->rows != rows || found->cols != cols) {
      // conv1d may state its unit dimension in either place: [C, 1, T] or [C, T, 1].
      if (found->rows * found->cols != rows * cols ||
          qformat_info(found->format.id).kind != QKind::kPlain || found->shape.size() != 3) {
        fail(corrupt(Where{.file = file_, .tensor = name},
                     "is " + std::to_string(found->rows) + " x " + std::to_string(found->cols) +
                         ", config.json asks for " + std::to_string(rows) + " x " +
                         std::to_string(cols)));
        return nullptr;
      }
    }
    return &*found;
  }
  void fail(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
  }

  const ResidentManifest& manifest_;
  const std::byte* data_;
  std::string file_;
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
  DeltaNetWeights w;
  w.in_qkv = bind.matrix(p + "in_proj_qkv", channels, c.hidden_size);
  w.in_z = bind.matrix(p + "in_proj_z", value, c.hidden_size);
  w.in_b = bind.matrix(p + "in_proj_b", c.linear_value_heads, c.hidden_size);
  w.in_a = bind.matrix(p + "in_proj_a", c.linear_value_heads, c.hidden_size);
  w.out = bind.matrix(p + "out_proj", c.hidden_size, value);
  w.norm = bind.values(p + "norm", 1, c.linear_value_dim);  // plain in every source
  w.dt_bias = bind.values(p + "dt_bias", 1, c.linear_value_heads);
  w.decay_rate = bind.values(p + "A_log", 1, c.linear_value_heads);
  if (how.a_log == ResidentConventions::ALog::kLog) {
    for (float& a : w.decay_rate) a = -std::exp(a);
  }
  const std::vector<float> by_channel = bind.values(p + "conv1d", channels, c.linear_conv_taps);
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

// The bytes of all files where their logical offsets put them; zeros between files.
Result<AlignedBuffer> read_data(const std::filesystem::path& directory,
                                const ResidentManifest& manifest) {
  MOE_ASSIGN_OR_RETURN(AlignedBuffer data,
                       AlignedBuffer::allocate(manifest.data_size, kResidentAlignment));
  ChecksumStream stream;
  std::string last;
  std::uint64_t end = 0;
  for (const ResidentFile& entry : resident_files(manifest)) {
    MOE_ASSIGN_OR_RETURN(const File file, File::open(directory / entry.name));
    std::fill_n(data.data() + end, entry.begin - end, std::byte{0});
    const std::span<std::byte> bytes = data.span().subspan(entry.begin, entry.size);
    MOE_RETURN_IF_ERROR(file.read_at(0, bytes));
    if (manifest.has_checksum) stream.add(bytes);
    end = entry.begin + entry.size;
    last = file.path();
  }
  const std::uint64_t sum = stream.finish();
  if (manifest.has_checksum && sum != manifest.checksum) {
    return corrupt(Where{.file = last},
                   "checksum is " + checksum_text(sum) + ", " + kResidentManifestName + " says " +
                       checksum_text(manifest.checksum),
                   "the file is damaged; convert the checkpoint again");
  }
  return data;
}

}  // namespace

Result<ModelWeights> load_model_weights(const std::filesystem::path& directory,
                                        const ModelConfig& config,
                                        const ResidentManifest& manifest) {
  ModelWeights weights;
  MOE_ASSIGN_OR_RETURN(weights.data, read_data(directory, manifest));
  Binder bind(manifest, weights.data.data(), (directory / kResidentManifestName).string());
  weights.embedding = bind.matrix("model.embed_tokens", config.vocab_size, config.hidden_size);
  weights.lm_head = config.tie_word_embeddings
                        ? weights.embedding
                        : bind.matrix("lm_head", config.vocab_size, config.hidden_size);
  weights.final_norm = bind.norm("model.norm", config.hidden_size);
  weights.tiled_v_heads = manifest.conventions.v_heads == ResidentConventions::VHeads::kTiled;
  for (std::uint32_t layer = 0; layer < config.num_layers; ++layer) {
    weights.layers.push_back(bind_layer(bind, config, manifest.conventions, layer));
  }
  MOE_RETURN_IF_ERROR(bind.status());
  return weights;
}

}  // namespace moepack
