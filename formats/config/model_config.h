// What config.json says about a model, checked and with defaults filled in. One struct for every
// family; fields that a family lacks stay 0. What the layers consist of is layer_spec.h; a family
// is described in its file family_NAME.cpp (architecture.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/layer_spec.h"
#include "formats/weights/qformat.h"

namespace moepack {

// How rotary frequencies are stretched beyond the context that a model was trained with (YaRN,
// arXiv 2309.00071 section 3; transformers' _compute_yarn_parameters).
struct YarnSpec {
  double factor = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  std::uint32_t original_positions = 0;
  bool truncate = true;         // the range of corrected dimensions is rounded outwards
  double attention_factor = 1;  // multiplies cosines and sines
  // Multiplies the scale of the softmax: the square of the factor for mscale_all_dim where latent
  // attention asks for it, else 1.
  double softmax_factor = 1;

  friend bool operator==(const YarnSpec&, const YarnSpec&) = default;
};

struct ModelConfig {
  std::string model_type;  // of the text model, e.g. "qwen3_5_moe_text"

  std::uint32_t vocab_size = 0;
  std::uint32_t hidden_size = 0;
  std::uint32_t num_layers = 0;
  std::vector<LayerSpec> layers;  // [num_layers]
  float rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  float embedding_scale = 1;  // what embeddings are multiplied with
  float logit_cap = 0;        // logits become cap * tanh(logits / cap); 0: they stay
  std::uint32_t max_position_embeddings = 0;
  // Layers behind the last whose tensors a checkpoint may have, which predict further tokens
  // (num_nextn_predict_layers, num_mtp_modules). They are not computed.
  std::uint32_t prediction_layers = 0;

  // Mixture of experts.
  std::uint32_t num_experts = 0;
  std::uint32_t experts_per_token = 0;
  std::uint32_t expert_width = 0;         // moe_intermediate_size
  std::uint32_t shared_expert_width = 0;  // 0: no shared expert
  std::uint32_t dense_width = 0;          // of layers with DenseSpec; 0: there are none

  // Full attention, of layers without own_heads.
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t rotary_dim = 0;  // leading dimensions of a head that RoPE rotates; even
  double rope_theta = 0;
  bool rope_interleaved = false;  // pairs are (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  std::optional<YarnSpec> yarn;

  // Latent attention. head_dim is then that of a whole query: nope dimensions, then rotary_dim.
  std::uint32_t query_rank = 0;  // q_lora_rank; 0: queries are projected at once
  std::uint32_t kv_rank = 0;     // kv_lora_rank
  std::uint32_t value_dim = 0;   // of a head's value

  // GatedDeltaNet.
  std::uint32_t linear_key_heads = 0;
  std::uint32_t linear_value_heads = 0;
  std::uint32_t linear_key_dim = 0;    // of one head
  std::uint32_t linear_value_dim = 0;  // of one head
  std::uint32_t linear_conv_taps = 0;

  // The heads of a layer with full attention: its own, or those above.
  HeadSizes heads_of(const FullAttentionSpec& spec) const;
  // Those that differ, of all layers with full attention, in the order of the layers.
  std::vector<HeadSizes> head_kinds() const;

  LayerType layer_type(std::size_t layer) const { return moepack::layer_type(layers[layer]); }

  std::uint32_t layers_of(LayerType type) const;  // how many are of that kind
  std::uint32_t full_attention_layers() const { return layers_of(LayerType::kFullAttention); }

  // Ids that end a text: eos_token_id of config.json (number or list), then those that only its
  // text_config names; without repeats, each below vocab_size.
  std::vector<std::int32_t> eos_token_ids;
};

// MLX's `quantization` block: the default and the modules that depart from it.
// The scale_type of these formats is always BF16: config.json does not state it, the tensors do.
struct QuantizationConfig {
  struct Entry {
    std::string module;                  // e.g. "language_model.model.layers.0.mlp.gate"
    std::optional<WeightFormat> format;  // nullopt: explicitly not quantized (false)

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  WeightFormat default_format;
  std::vector<Entry> overrides;  // sorted by module

  // The format of `module` if it is quantized, which only its tensors can tell (MLX's rule: it has
  // `.scales`); nullopt when the configuration says that it is not.
  std::optional<WeightFormat> format_of(std::string_view module) const;

  friend bool operator==(const QuantizationConfig&, const QuantizationConfig&) = default;
};

// Quantization by a method that names itself ("quant_method"), or by a file beside config.json
// (ModelOpt's hf_quant_config.json). Which modules are quantized, and how, is told by their
// tensors; here stands what those leave open.
struct SourceQuantization {
  // "fp8", "compressed-tensors", "gptq", "awq", "mxfp4", "modelopt"; "" when none is named
  std::string method;
  // Weights that share a scale, as in weight_block_size; 0 when nothing is said.
  std::uint32_t block_rows = 0;
  std::uint32_t block_cols = 0;
  // Of integers: bit b is set when codes of b bits are declared for some modules.
  std::uint32_t code_widths = 0;
  // Inputs that share a scale; 0: nothing is said, or all inputs of a row do.
  std::uint32_t group_size = 0;
  // GPTQ. `symmetric`: every zero is half of the codes' range. `zeros_less_one`: the zeros in the
  // file are one less than those that are meant (version 1). `any_order`: an input's group is told
  // by g_idx alone (desc_act).
  bool symmetric = false;
  bool zeros_less_one = false;
  bool any_order = false;

  friend bool operator==(const SourceQuantization&, const SourceQuantization&) = default;
};

struct ParsedConfig {
  ModelConfig model;
  std::optional<QuantizationConfig> quantization;  // MLX's, which names no method
  SourceQuantization source_quantization;
};

// Reads the text of a config.json (nested `text_config` or flat). `file` names it in errors, which
// also name the key. Keys that are absent or null take the defaults of the family, as transformers
// does; unknown keys are ignored.
// kUnsupported: unknown model types (the message lists the known ones), settings whose math is not
// implemented, and quantizations that cannot be read (those that can: SourceQuantization::method
// and MLX's modes affine, mxfp4, nvfp4, mxfp8). kCorrupt: dimensions that are no whole numbers in a
// sane range, numbers that contradict each other (heads not divisible, experts per token above the
// number of experts, layer_types of the wrong length, one setting stated twice with different
// values, ...).
Result<ParsedConfig> parse_model_config(std::string_view text, const std::string& file);
// Reads and parses the config.json at `path`, and the hf_quant_config.json beside it if there is
// one.
Result<ParsedConfig> read_model_config(const std::filesystem::path& path);

// The quantization alone, of a config.json whose family may be unknown: `model` stays empty. Errors
// as those of parse_model_config about quantization.
Result<ParsedConfig> parse_quantization(std::string_view text, const std::string& file);
// ModelOpt's hf_quant_config.json, which stands beside config.json and says the same or what that
// leaves out: `text` is its contents, `file` names it. kCorrupt when the two contradict each other.
Status add_quantization_file(std::string_view text, const std::string& file, ParsedConfig& config);

// The model_type values that parse_model_config accepts, for messages and help: "a, b".
std::string supported_model_types();

}  // namespace moepack
