// Parts of a config.json that several families share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/config/config_reader.h"
#include "formats/config/model_config.h"

namespace moepack {

// The values that stand for absent keys of these names.
struct TextModelDefaults {
  std::uint32_t vocab_size = 0;
  std::uint32_t hidden_size = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
};
// Fills the fields of TextModelDefaults, and tie_word_embeddings.
Status read_text_model(const ConfigReader& text, const TextModelDefaults& defaults,
                       ModelConfig& model);

struct ExpertDefaults {
  std::uint32_t num_experts = 0;
  std::string_view num_key = "num_experts";
  // Another name of num_key, as some versions of transformers write it; "": none. A file that
  // has both must agree with itself.
  std::string_view other_key = {};
  std::uint32_t experts_per_token = 0;
  std::string_view chosen_key = "num_experts_per_tok";
  std::string_view width_key;  // of an expert's width, which families call differently
  std::uint32_t width = 0;
};
// Fills num_experts, experts_per_token and expert_width.
Status read_experts(const ConfigReader& text, const ExpertDefaults& defaults, ModelConfig& model);

struct HeadDefaults {
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;  // 0: as many as there are heads
  std::uint32_t head_dim = 0;      // 0: the hidden size shared among the heads
};
// Fills num_heads, num_kv_heads and head_dim; hidden_size must be set.
Status read_attention_heads(const ConfigReader& text, const HeadDefaults& defaults,
                            ModelConfig& model);

struct RopeDefaults {
  double theta = 0;
  double partial_rotary_factor = 1;
  // Values of which partial_rotary_factor takes a part; 0: head_dim.
  std::uint32_t width = 0;
  // A key that states rotary_dim itself where the file has it; "": none.
  std::string_view rotary_key = {};
  bool has_yarn = false;  // the type "yarn" is computed
  // With YaRN, the softmax is scaled by the square of the factor for mscale_all_dim.
  bool scales_softmax = false;
};

// rope_theta of this object: a number above 1, `fallback` where it is absent.
Result<double> read_rope_theta(const ConfigReader& place, double fallback);

// Fills rope_theta, rotary_dim = width * partial_rotary_factor (head_dim must be set) and yarn. The
// settings are looked for in rope_parameters, rope_scaling and, but for yarn's, at the top level,
// as versions of transformers differ; places that disagree are an error. Rope types other than
// "default" and, with has_yarn, "yarn" are kUnsupported. max_position_embeddings must be set.
Status read_rope(const ConfigReader& text, const RopeDefaults& defaults, ModelConfig& model);

// Fills layers (num_layers must be set): each is `full` or `linear`, by the list layer_types, else
// by full_attention_interval: layer i is full attention iff (i + 1) % interval == 0.
Status read_layer_types(const ConfigReader& text, std::uint32_t default_interval,
                        const LayerSpec& full, const LayerSpec& linear, ModelConfig& model);

// Refuses configurations in which some layers have a dense network in place of experts
// (mlp_only_layers, decoder_sparse_step): kUnsupported.
Status refuse_dense_layers(const ConfigReader& text);

// Fills layers (num_layers must be set): the first of them, as many as `key` says and
// `default_dense` where it is absent, have a dense network; `layer` is what the others are. All may
// not be dense. With any, dense_width is what `width_key` says.
struct DenseDefaults {
  std::string_view key = "first_k_dense_replace";
  std::uint32_t layers = 0;
  std::string_view width_key = "intermediate_size";
  std::uint32_t width = 0;
};
Status read_dense_layers(const ConfigReader& text, const DenseDefaults& defaults,
                         const LayerSpec& layer, ModelConfig& model);

// Fills layers with copies of `layer`, whose mixer is a FullAttentionSpec; those that layer_types
// calls sliding_attention get the window, the others are full_attention. Where the key is absent,
// every full_interval-th layer has none. num_layers must be set.
struct WindowDefaults {
  std::uint32_t window = 0;
  std::uint32_t full_interval = 0;
};
Status read_window_layers(const ConfigReader& text, const WindowDefaults& defaults,
                          const LayerSpec& layer, ModelConfig& model);

// Fills the router's scale and groups, as DeepSeek-V3 states them (norm_topk_prob,
// routed_scaling_factor, n_group, topk_group); num_experts must be set.
struct SigmoidRouterDefaults {
  bool renormalise = true;
  double scale = 1;
  std::uint32_t groups = 1;
  std::uint32_t kept_groups = 1;
};
Result<SigmoidRouterSpec> read_sigmoid_router(const ConfigReader& text,
                                              const SigmoidRouterDefaults& defaults,
                                              const ModelConfig& model);

// Fills prediction_layers from `key`, 0 where it is absent.
Status read_prediction_layers(const ConfigReader& text, ModelConfig& model,
                              std::string_view key = "num_nextn_predict_layers");

// Adds the ids of eos_token_id (number, list or absent) to eos_token_ids; vocab_size must be set.
Status read_eos_token_ids(const ConfigReader& object, ModelConfig& model);

// Reads the `quantization` and `quantization_config` blocks of the outer object and of its
// text_config (nullptr when flat) into the quantization members of `parsed`. Several blocks must
// say the same.
Status read_quantization(const ConfigReader& outer, const ConfigReader* text, ParsedConfig& parsed);

}  // namespace moepack
