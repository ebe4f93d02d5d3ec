#include "tests/support/tiny_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <stdexcept>
#include <utility>

#include "formats/base/bytes.h"
#include "formats/base/checksum.h"
#include "formats/weights/qformat.h"
#include "quant/affine.h"

namespace moepack::test {
namespace {

constexpr std::uint32_t kFirstMerged = 256;  // token ids: bytes, merges, special tokens
constexpr std::uint32_t kEndOfText = 259;
constexpr std::uint32_t kTurnStart = 260;
constexpr std::uint32_t kTurnEnd = 261;

using Shape = std::vector<std::uint64_t>;

// A tensor of the per-expert text layout, before it is stored.
struct Plain {
  std::string name;  // without the prefix `model.`, but for lm_head
  Shape shape;
  std::vector<float> values;  // BF16 values
};

std::uint64_t elements(const Shape& shape) {
  std::uint64_t product = 1;
  for (std::uint64_t dimension : shape) product *= dimension;
  return product;
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : seed_(seed) {}

  // Uniform values around `center`. Only the raw bits of the engine are used, which the standard
  // fixes, so that every library makes the same model.
  void add(const std::string& name, Shape shape, double center, double spread) {
    std::mt19937_64 engine(seed_ ^ checksum(std::as_bytes(std::span(name))));
    std::vector<float> values(elements(shape));
    for (float& value : values) {
      const double unit = static_cast<double>(engine() >> 40) * 0x1p-23 - 1;  // [-1, 1)
      value = bf16_to_f32(f32_to_bf16(static_cast<float>(center + spread * unit)));
    }
    tensors_.push_back({name, std::move(shape), std::move(values)});
  }
  void add_linear(const std::string& name, std::uint64_t out, std::uint64_t in) {
    add(name + ".weight", {out, in}, 0, std::sqrt(3.0 / static_cast<double>(in)));
  }
  std::vector<Plain> take() { return std::move(tensors_); }

 private:
  std::uint64_t seed_;
  std::vector<Plain> tensors_;
};

bool is_full_attention(const TinyModelOptions& options, std::uint32_t layer) {
  return (layer + 1) % options.full_attention_interval == 0;
}

void add_full_attention(const TinyModelOptions& o, const std::string& at, Generator& out) {
  const std::uint64_t queries = std::uint64_t{o.num_heads} * o.head_dim;
  const std::uint64_t keys = std::uint64_t{o.num_kv_heads} * o.head_dim;
  out.add_linear(at + "q_proj", 2 * queries, o.hidden_size);
  out.add_linear(at + "k_proj", keys, o.hidden_size);
  out.add_linear(at + "v_proj", keys, o.hidden_size);
  out.add_linear(at + "o_proj", o.hidden_size, queries);
  out.add(at + "q_norm.weight", {o.head_dim}, 0, 0.25);
  out.add(at + "k_norm.weight", {o.head_dim}, 0, 0.25);
}

void add_linear_attention(const TinyModelOptions& o, const std::string& at, Generator& out) {
  const std::uint64_t keys = std::uint64_t{o.linear_key_heads} * o.linear_key_dim;
  const std::uint64_t values = std::uint64_t{o.linear_value_heads} * o.linear_value_dim;
  const std::uint64_t channels = 2 * keys + values;
  out.add_linear(at + "in_proj_qkv", channels, o.hidden_size);
  out.add_linear(at + "in_proj_z", values, o.hidden_size);
  out.add_linear(at + "in_proj_b", o.linear_value_heads, o.hidden_size);
  out.add_linear(at + "in_proj_a", o.linear_value_heads, o.hidden_size);
  out.add(at + "conv1d.weight", {channels, 1, o.linear_conv_taps}, 0, 0.5);
  out.add(at + "A_log", {o.linear_value_heads}, 1.4, 1.3);
  out.add(at + "dt_bias", {o.linear_value_heads}, 0, 1);
  out.add(at + "norm.weight", {o.linear_value_dim}, 1, 0.25);
  out.add_linear(at + "out_proj", o.hidden_size, values);
}

void add_mlp(const TinyModelOptions& o, const std::string& at, Generator& out) {
  out.add_linear(at + "gate", o.num_experts, o.hidden_size);
  const auto add_expert = [&](const std::string& expert, std::uint64_t width) {
    out.add_linear(expert + "gate_proj", width, o.hidden_size);
    out.add_linear(expert + "up_proj", width, o.hidden_size);
    out.add_linear(expert + "down_proj", o.hidden_size, width);
  };
  for (std::uint32_t e = 0; e < o.num_experts; ++e) {
    add_expert(at + "experts." + std::to_string(e) + ".", o.expert_width);
  }
  add_expert(at + "shared_expert.", o.shared_expert_width);
  out.add_linear(at + "shared_expert_gate", 1, o.hidden_size);
}

std::vector<Plain> plain_tensors(const TinyModelOptions& o) {
  Generator out(o.seed);
  out.add("embed_tokens.weight", {o.vocab_size, o.hidden_size}, 0, 1);
  out.add("norm.weight", {o.hidden_size}, 0, 0.25);
  out.add_linear("lm_head", o.vocab_size, o.hidden_size);
  for (std::uint32_t i = 0; i < o.num_layers; ++i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    out.add(at + "input_layernorm.weight", {o.hidden_size}, 0, 0.25);
    out.add(at + "post_attention_layernorm.weight", {o.hidden_size}, 0, 0.25);
    if (is_full_attention(o, i)) {
      add_full_attention(o, at + "self_attn.", out);
    } else {
      add_linear_attention(o, at + "linear_attn.", out);
    }
    add_mlp(o, at + "mlp.", out);
  }
  return out.take();
}

WriterTensor stored(const std::string& name, const Shape& shape, std::span<const float> values,
                    DType dtype) {
  WriterTensor tensor{name, dtype, shape, {}};
  const std::size_t width = dtype_bits(dtype) / 8;
  tensor.bytes.resize(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    char* at = tensor.bytes.data() + i * width;
    if (dtype == DType::kF32) {
      store_le(at, values[i]);
    } else {
      store_le(at, f32_to_bf16(values[i]));
    }
  }
  return tensor;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

DType state_type(const TinyModelOptions& options, std::string_view name) {
  const bool is_state = ends_with(name, ".A_log") || ends_with(name, ".dt_bias");
  return is_state && options.state_in_f32 ? DType::kF32 : DType::kBf16;
}

std::string prefixed(const TinyModelOptions& options, const std::string& name) {
  const bool is_head = name.compare(0, 8, "lm_head.") == 0;
  switch (options.layout) {
    case TinyLayout::kPerExpert:
      return is_head ? name : "model." + name;
    case TinyLayout::kFusedWrapper:
      return is_head ? name : "model.language_model." + name;
    case TinyLayout::kMlx:
      return is_head ? "language_model." + name : "language_model.model." + name;
  }
  return name;
}

// Position of "experts.N." in a routed expert's name, else npos.
std::size_t expert_at(const std::string& name) {
  const std::size_t at = name.find(".mlp.experts.");
  return at == std::string::npos ? at : at + 5;
}

// Replaces the routed experts' matrices by one [E, out, in] tensor per layer and projection, named
// `mlp.experts.PROJECTION.weight`, at the place of the first expert's.
std::vector<Plain> stack_experts(std::vector<Plain> tensors, std::uint32_t num_experts) {
  std::vector<Plain> result;
  for (Plain& tensor : tensors) {
    const std::size_t at = expert_at(tensor.name);
    if (at == std::string::npos) {
      result.push_back(std::move(tensor));
      continue;
    }
    const std::size_t number = at + 8;
    const std::string name =
        tensor.name.substr(0, number) + tensor.name.substr(tensor.name.find('.', number) + 1);
    auto stack = std::find_if(result.begin(), result.end(),
                              [&](const Plain& other) { return other.name == name; });
    if (stack == result.end()) {
      result.push_back({name, {num_experts, tensor.shape[0], tensor.shape[1]}, {}});
      stack = std::prev(result.end());
    }
    stack->values.insert(stack->values.end(), tensor.values.begin(), tensor.values.end());
  }
  return result;
}

// [E, I, H] gate and up to [E, 2I, H]: of each expert the gate rows, then the up rows.
Plain fuse_gate_up(const Plain& gate, const Plain& up, const std::string& name) {
  Plain fused{name, {gate.shape[0], 2 * gate.shape[1], gate.shape[2]}, {}};
  const std::ptrdiff_t one = static_cast<std::ptrdiff_t>(gate.shape[1] * gate.shape[2]);
  for (std::ptrdiff_t e = 0; e < static_cast<std::ptrdiff_t>(gate.shape[0]); ++e) {
    for (const Plain* half : {&gate, &up}) {
      const auto begin = half->values.begin() + e * one;
      fused.values.insert(fused.values.end(), begin, begin + one);
    }
  }
  return fused;
}

std::vector<Plain> fuse_experts(const std::vector<Plain>& stacked) {
  std::vector<Plain> result;
  const Plain* gate = nullptr;
  for (const Plain& tensor : stacked) {
    const std::size_t at = expert_at(tensor.name);
    if (at == std::string::npos) {
      result.push_back(tensor);
      continue;
    }
    const std::string experts = tensor.name.substr(0, at + 8);
    if (ends_with(tensor.name, "gate_proj.weight")) gate = &tensor;
    if (ends_with(tensor.name, "up_proj.weight")) {
      result.push_back(fuse_gate_up(*gate, tensor, experts + "gate_up_proj"));
    }
    if (ends_with(tensor.name, "down_proj.weight")) {
      result.push_back({experts + "down_proj", tensor.shape, tensor.values});
    }
  }
  return result;
}

// Tensors that a text runtime must skip: vision, and a multi-token-prediction block.
void add_skipped_tensors(const TinyModelOptions& o, std::vector<WriterTensor>& out) {
  Generator generator(o.seed);
  generator.add("model.visual.patch_embed.proj.weight", {8, 3, 2, 4, 4}, 0, 1);
  generator.add("model.visual.blocks.0.attn.qkv.weight", {24, 8}, 0, 1);
  generator.add("mtp.fc.weight", {o.hidden_size, 2 * o.hidden_size}, 0, 1);
  generator.add("mtp.norm.weight", {o.hidden_size}, 0, 1);
  generator.add("mtp.layers.0.mlp.experts.gate_up_proj",
                {o.num_experts, 2 * o.expert_width, o.hidden_size}, 0, 1);
  generator.add("mtp.layers.0.mlp.experts.down_proj",
                {o.num_experts, o.hidden_size, o.expert_width}, 0, 1);
  for (const Plain& tensor : generator.take()) {
    out.push_back(stored(tensor.name, tensor.shape, tensor.values, DType::kBf16));
  }
}

bool is_mlx_router(std::string_view module) {
  return ends_with(module, ".mlp.gate") || ends_with(module, ".shared_expert_gate");
}

WeightFormat mlx_format(const TinyModelOptions& o, std::string_view module) {
  const std::uint32_t bits = is_mlx_router(module) ? o.router_bits : o.bits;
  const auto id = affine_qformat(bits);
  if (!id.has_value() || !is_valid_group_size(o.group_size)) {
    throw std::runtime_error("tiny model: no such affine format");
  }
  return {.id = *id, .group_size = o.group_size, .scale_type = o.scale_type};
}

// The three tensors of a quantized module; `shape` is [.., out, in].
void add_quantized(const WeightFormat& format, const std::string& module, const Plain& tensor,
                   std::vector<WriterTensor>& out) {
  const std::uint64_t cols = tensor.shape.back();
  const std::uint64_t rows = tensor.values.size() / cols;
  const auto row = matrix_bytes(format, 1, cols);
  if (!row.has_value()) throw std::runtime_error("tiny model: cannot quantize " + tensor.name);
  Shape code_shape = tensor.shape;
  code_shape.back() = row->codes() / 4;
  Shape scale_shape = tensor.shape;
  scale_shape.back() = cols / format.group_size;
  WriterTensor codes{module + ".weight", DType::kU32, code_shape,
                     std::string(rows * row->codes(), '\0')};
  WriterTensor scales{module + ".scales", format.scale_type, scale_shape,
                      std::string(rows * (*row)[Component::kScales], '\0')};
  WriterTensor biases{module + ".biases", format.scale_type, scale_shape,
                      std::string(rows * (*row)[Component::kBiases], '\0')};
  const auto slice = [](WriterTensor& whole, std::uint64_t at, std::uint64_t size) {
    return std::as_writable_bytes(std::span(whole.bytes)).subspan(at * size, size);
  };
  for (std::uint64_t r = 0; r < rows; ++r) {
    encode_affine_row(format, std::span(tensor.values).subspan(r * cols, cols),
                      {.codes = slice(codes, r, row->codes()),
                       .scales = slice(scales, r, (*row)[Component::kScales]),
                       .biases = slice(biases, r, (*row)[Component::kBiases])});
  }
  out.push_back(std::move(codes));
  out.push_back(std::move(scales));
  out.push_back(std::move(biases));
}

// mlx-lm's renaming and reshaping of one tensor, then its quantization.
void add_mlx_tensor(const TinyModelOptions& o, Plain tensor, std::vector<WriterTensor>& out) {
  if (const std::size_t at = expert_at(tensor.name); at != std::string::npos) {
    tensor.name.replace(at, 7, "switch_mlp");
  }
  const bool is_conv = ends_with(tensor.name, "conv1d.weight");
  if (is_conv) std::swap(tensor.shape[1], tensor.shape[2]);
  const bool is_gated_norm = ends_with(tensor.name, "linear_attn.norm.weight");
  if (ends_with(tensor.name, "norm.weight") && !is_gated_norm) {
    for (float& value : tensor.values) value += 1;
  }
  const std::string name = prefixed(o, tensor.name);
  const bool is_matrix = tensor.shape.size() >= 2 && !is_conv;
  if (is_matrix && tensor.shape.back() % o.group_size == 0) {
    const std::string module = name.substr(0, name.size() - std::string_view(".weight").size());
    add_quantized(mlx_format(o, module), module, tensor, out);
  } else {
    out.push_back(stored(name, tensor.shape, tensor.values, state_type(o, name)));
  }
}

nlohmann::ordered_json text_config(const TinyModelOptions& o) {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::uint32_t i = 0; i < o.num_layers; ++i) {
    types.push_back(is_full_attention(o, i) ? "full_attention" : "linear_attention");
  }
  return {
      {"model_type", "qwen3_5_moe_text"},
      {"architectures", {"Qwen3_5MoeForCausalLM"}},
      {"vocab_size", o.vocab_size},
      {"hidden_size", o.hidden_size},
      {"num_hidden_layers", o.num_layers},
      {"layer_types", types},
      {"num_experts", o.num_experts},
      {"num_experts_per_tok", o.experts_per_token},
      {"moe_intermediate_size", o.expert_width},
      {"shared_expert_intermediate_size", o.shared_expert_width},
      {"num_attention_heads", o.num_heads},
      {"num_key_value_heads", o.num_kv_heads},
      {"head_dim", o.head_dim},
      {"linear_num_key_heads", o.linear_key_heads},
      {"linear_num_value_heads", o.linear_value_heads},
      {"linear_key_head_dim", o.linear_key_dim},
      {"linear_value_head_dim", o.linear_value_dim},
      {"linear_conv_kernel_dim", o.linear_conv_taps},
      {"rope_parameters",
       {{"rope_type", "default"},
        {"rope_theta", 10000.0},
        {"partial_rotary_factor", o.partial_rotary_factor}}},
      {"rms_norm_eps", 1e-6},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"tie_word_embeddings", false},
      {"max_position_embeddings", 512},
      {"eos_token_id", kEndOfText},
      {"dtype", "bfloat16"},
  };
}

// The 256 characters that byte-level BPE writes bytes as, in the order of the bytes.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                              (byte >= 0xae && byte <= 0xff);
    const std::uint32_t code = is_printable ? byte : next++;
    std::string utf8;
    if (code < 0x80) {
      utf8 += static_cast<char>(code);
    } else {
      utf8 += static_cast<char>(0xc0 | (code >> 6));
      utf8 += static_cast<char>(0x80 | (code & 0x3f));
    }
    characters.push_back(std::move(utf8));
  }
  return characters;
}

// Bytes, three merges, three special tokens.
nlohmann::ordered_json tokenizer_json() {
  const std::vector<std::string> characters = byte_characters();
  nlohmann::ordered_json vocabulary = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < characters.size(); ++i) vocabulary[characters[i]] = i;
  const std::string space = characters[' '];
  vocabulary["th"] = kFirstMerged;
  vocabulary["the"] = kFirstMerged + 1;
  vocabulary[space + "the"] = kFirstMerged + 2;
  nlohmann::ordered_json merges = nlohmann::ordered_json::array();
  merges.push_back({"t", "h"});
  merges.push_back({"th", "e"});
  merges.push_back({space, "the"});

  nlohmann::ordered_json added = nlohmann::ordered_json::array();
  const std::array<std::pair<std::uint32_t, const char*>, 3> special{
      {{kEndOfText, "<|endoftext|>"}, {kTurnStart, "<|im_start|>"}, {kTurnEnd, "<|im_end|>"}}};
  for (const auto& [id, content] : special) {
    added.push_back({{"id", id},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const char* pattern =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
      " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  nlohmann::ordered_json split = {{"type", "Split"},
                                  {"pattern", {{"Regex", pattern}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}};
  nlohmann::ordered_json bytes = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", false},
                                  {"use_regex", false}};
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  steps.push_back(split);
  steps.push_back(bytes);
  return {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocabulary},
        {"merges", merges}}},
  };
}

void write_tokenizer(const std::filesystem::path& directory) {
  write_file(directory / "tokenizer.json", tokenizer_json().dump(1));
  const nlohmann::ordered_json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                           {"eos_token", "<|im_end|>"},
                                           {"pad_token", "<|endoftext|>"}};
  write_file(directory / "tokenizer_config.json", settings.dump(1));
  write_file(directory / "chat_template.jinja",
             "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
             "<|im_end|>\n{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant\n"
             "{%- endif %}");
}

std::string shard_name(const TinyModelOptions& o, std::uint32_t number) {
  const auto padded = [](std::uint32_t n) {
    const std::string digits = std::to_string(n);
    return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
  };
  // Both spellings occur in published models.
  const char* stem = o.layout == TinyLayout::kFusedWrapper ? "model.safetensors-" : "model-";
  return stem + padded(number) + "-of-" + padded(o.shards) + ".safetensors";
}

void write_weights(const std::filesystem::path& directory, const TinyModelOptions& o) {
  std::vector<WriterTensor> tensors = tiny_model_tensors(o);
  if (o.shards == 1 && o.layout != TinyLayout::kMlx) {
    write_safetensors(directory / "model.safetensors", std::move(tensors), o.writer);
    return;
  }
  std::uint64_t total = 0;
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (std::uint32_t s = 0; s < o.shards; ++s) {
    const std::string file = o.shards == 1 ? "model.safetensors" : shard_name(o, s + 1);
    const std::size_t begin = tensors.size() * s / o.shards;
    const std::size_t end = tensors.size() * (s + 1) / o.shards;
    std::vector<WriterTensor> part;
    for (std::size_t i = begin; i < end; ++i) {
      total += tensors[i].bytes.size();
      map[tensors[i].name] = file;
      part.push_back(tensors[i]);
    }
    write_safetensors(directory / file, std::move(part), o.writer);
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file(directory / "model.safetensors.index.json", index.dump(1));
}

}  // namespace

nlohmann::ordered_json tiny_model_config(const TinyModelOptions& options) {
  nlohmann::ordered_json text = text_config(options);
  if (options.layout == TinyLayout::kPerExpert) return text;
  text.erase("architectures");
  nlohmann::ordered_json config = {
      {"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
      {"model_type", "qwen3_5_moe"},
      {"tie_word_embeddings", false},
      {"text_config", text},
  };
  if (options.layout == TinyLayout::kFusedWrapper) {
    config["vision_config"] = {{"model_type", "qwen3_5_moe"}, {"depth", 1}, {"hidden_size", 8}};
    return config;
  }
  nlohmann::ordered_json block = {
      {"group_size", options.group_size}, {"bits", options.bits}, {"mode", "affine"}};
  for (std::uint32_t i = 0; i < options.num_layers; ++i) {
    const std::string mlp = "language_model.model.layers." + std::to_string(i) + ".mlp.";
    for (const char* module : {"gate", "shared_expert_gate"}) {
      block[mlp + module] = {{"group_size", options.group_size}, {"bits", options.router_bits}};
    }
  }
  config["quantization"] = block;
  config["quantization_config"] = block;
  return config;
}

std::vector<WriterTensor> tiny_model_tensors(const TinyModelOptions& options) {
  std::vector<Plain> plain = plain_tensors(options);
  std::vector<WriterTensor> tensors;
  if (options.layout != TinyLayout::kPerExpert) {
    plain = stack_experts(std::move(plain), options.num_experts);
  }
  if (options.layout == TinyLayout::kFusedWrapper) {
    plain = fuse_experts(plain);
    add_skipped_tensors(options, tensors);
  }
  for (Plain& tensor : plain) {
    if (options.layout == TinyLayout::kMlx) {
      add_mlx_tensor(options, std::move(tensor), tensors);
    } else {
      const std::string name = prefixed(options, tensor.name);
      tensors.push_back(stored(name, tensor.shape, tensor.values, state_type(options, name)));
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const WriterTensor& a, const WriterTensor& b) { return a.name < b.name; });
  return tensors;
}

void write_tiny_model(const std::filesystem::path& directory, const TinyModelOptions& options) {
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", tiny_model_config(options).dump(1));
  const nlohmann::ordered_json generation = {{"eos_token_id", {kTurnEnd, kEndOfText}}};
  write_file(directory / "generation_config.json", generation.dump(1));
  if (options.with_tokenizer) write_tokenizer(directory);
  write_weights(directory, options);
}

}  // namespace moepack::test
