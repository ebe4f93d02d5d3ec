// What a family of models is made of: one table per family, in its file family_NAME.cpp, read by
// everything that has to know a module by its name or its shape: the converter, the exporters,
// overlays, the reader of the flash-moe engines' weights and the runtime. families.h lists them.
//
// Names in a table are canonical: HuggingFace's, with the wrapper's prefix replaced by "model.".
// mlx-lm uses the same names under prefixes of its own, and stacks experts (ExpertNames::stacked);
// the flash-moe engines use mlx-lm's without "language_model.". llama.cpp's are a column.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/model_config.h"
#include "formats/config/row_runs.h"

namespace moepack {

class ConfigReader;

// What a module is for. A family has each role at most once.
enum class ModuleRole : std::uint8_t {
  kEmbedding,
  kFinalNorm,
  kOutputHead,  // absent where the embedding is also the head
  // Every layer.
  kInputNorm,
  kPostNorm,           // before the feed-forward network; with branches before the routed experts
  kMixerOutputNorm,    // LayerSpec::has_output_norms
  kNetworkOutputNorm,  // likewise
  kOutputScale,        // LayerSpec::has_output_scale
  kRouter,
  kRouterBias,
  kRouterCorrection,  // e_score_correction_bias
  kRouterNorm,        // the factor of SoftmaxRouterSpec::has_norm times hidden_size ^ 0.5
  kExpertScales,      // SoftmaxRouterSpec::has_expert_scales
  kExpertGateBias,    // of all experts, [E, width]
  kExpertUpBias,      // as kExpertGateBias
  kExpertDownBias,    // [E, H]
  kDenseGate,         // of layers without experts
  kDenseUp,
  kDenseDown,
  kSharedExpertGate,  // how much of the shared expert is added
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedInputNorm,   // ExpertsSpec::has_branch_norms, before the shared expert
  kSharedOutputNorm,  // and behind it
  kRoutedOutputNorm,  // behind the sum of the routed ones
  // Full attention.
  kQuery,
  kKey,
  kValue,
  kAttentionOutput,
  kQueryNorm,
  kKeyNorm,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kAttentionOutputBias,
  kSinks,
  // Latent attention; kAttentionOutput, and kQuery where queries are not compressed, are shared.
  kQueryDown,      // q_a_proj
  kQueryDownNorm,  // q_a_layernorm
  kQueryUp,        // q_b_proj
  kKeyValueDown,   // kv_a_proj_with_mqa
  kKeyValueNorm,   // kv_a_layernorm
  kKeyValueUp,     // kv_b_proj
  // GatedDeltaNet.
  kDeltaQkv,
  kDeltaZ,
  kDeltaBeta,
  kDeltaAlpha,
  kDeltaConv,
  kDeltaALog,
  kDeltaDtBias,
  kDeltaNorm,
  kDeltaOut,
};

// In which layers a module stands.
enum class LayerScope : std::uint8_t {
  kModel,
  kEveryLayer,
  kLinearAttention,
  kFullAttention,
  kLatentAttention,
  kExperts,  // layers with routed experts
  kDense,    // layers without
};

// How far a module may be rounded when the user asks for it.
enum class Rounding : std::uint8_t {
  kNever,     // norms, convolutions, the parameters of the decay
  kAtLeast8,  // the router and the shared expert's gate: they choose, so errors do not average out
  kAsAsked,
};

// Where a module's values belong to V heads of GatedDeltaNet, whose order differs between
// checkpoints and some GGUF files.
enum class VHeadRule : std::uint8_t {
  kNone,
  kRows,            // each head has linear_value_dim rows
  kRowsBehindKeys,  // as kRows, behind the rows of queries and keys
  kScalars,         // each head has one row, or one value
  kColumns,         // each head has linear_value_dim columns
};

// A module that the runtime keeps in memory.
struct ResidentRule {
  ModuleRole role;
  std::string_view name;  // below "model.layers.N." for the scopes of layers
  LayerScope scope;
  // The logical shape (read by module_shape); {channels, 1, taps} may also be written {channels,
  // taps, 1}. A dimension of 0 means that this model has no such module.
  std::vector<std::uint64_t> (*shape)(const ModelConfig&);
  Rounding rounding = Rounding::kAsAsked;
  bool has_weight_suffix = true;    // false: the tensor is called `name` itself
  std::string_view gguf_name = {};  // llama.cpp's, below "blk.N." for the scopes of layers
  VHeadRule v_heads = VHeadRule::kNone;
  // For layers that differ in it, in place of `shape`: that in one of them.
  std::vector<std::uint64_t> (*layer_shape)(const ModelConfig&, std::uint32_t layer) = nullptr;
};

// One resident within a fused tensor of a layer.
struct FusedPart {
  ModuleRole role;
  RowRuns (*rows)(const ModelConfig&);  // null: a part of the columns
  std::uint64_t first_column = 0;       // then every column_step-th from there on
  std::uint64_t column_step = 1;
};

struct FusedRule {
  std::string_view name;       // as ResidentRule's
  std::string_view gguf_name;  // as ResidentRule's
  bool usual_in_gguf;          // false: only old files have it
  std::vector<std::uint64_t> (*shape)(const ModelConfig&);
  std::array<FusedPart, 2> parts;
  bool has_weight_suffix = true;  // as ResidentRule's
};

struct PrefixRule {
  std::string_view source;
  std::string_view canonical;
};

// The matrix of an expert that a tensor holds; kGateUp has the rows of gate, then those of up.
enum class ExpertMatrix : std::uint8_t { kGate, kUp, kDown, kGateUp };
constexpr std::size_t kExpertMatrices = 4;

// What tensors of routed experts are called, below "model.layers.N.".
struct ExpertNames {
  std::string_view folder;   // FOLDER E "." MATRIX ".weight", or FOLDER MATRIX for all experts
  std::string_view stacked;  // mlx-lm's: STACKED MATRIX ".weight" for all experts
  std::array<std::string_view, kExpertMatrices> matrices;  // by ExpertMatrix
  std::array<std::string_view, kExpertMatrices> gguf;      // whole, below "blk.N."; all experts
  std::array<std::string_view, kExpertMatrices> stacked_matrices;  // MATRIX behind STACKED
  // In tensors of all experts below FOLDER: kGateUp has rows of gate and of up by turns.
  bool is_interleaved = false;
  // Such tensors of plain numbers are [E, inputs, outputs].
  bool is_transposed = false;
};

// What the norms of a checkpoint hold. Those of GGUF files and of the flash-moe engines are always
// factors.
enum class NormSource : std::uint8_t {
  kFactor,        // the factor itself
  kToldByConv1d,  // 1 less where conv1d is [channels, 1, taps], as transformers writes it
};

struct Architecture {
  std::string_view wrapper_type;     // model_type of the form with a nested text_config
  std::string_view text_model_type;  // model_type of text_config, and of the flat form
  std::string_view model_class;      // of transformers, for the flat form
  // Fills every field of ModelConfig but model_type and eos_token_ids from config.json.
  Status (*read_config)(const ConfigReader& text, ModelConfig& model);
  NormSource norms;
  std::string_view gguf_architecture;  // general.architecture of GGUF files; "": none known here
  bool gguf_tiles_v_heads;             // llama.cpp's converter reorders V heads
  bool gguf_has_rope_sections;         // llama.cpp rotates by several axes, whose sizes it asks for
  bool gguf_pairs_rows = false;        // rows of a head's halves by turns in attn_q and attn_k
  bool exports_gguf = false;           // GGUF files of it are written
  bool runs_in_flashmoe;               // the flash-moe engines compute it
  std::span<const PrefixRule> prefixes;       // the first that fits is taken
  std::span<const std::string_view> skipped;  // prefixes of names of parts that are not run
  std::span<const ResidentRule> residents;
  std::span<const FusedRule> fused;
  const ExpertNames* experts;
  // Prefixes of names of what predicts further tokens, where it is no layer behind the last.
  std::span<const std::string_view> prediction = {};
};

// All families, in the order in which messages name them. The tables live as long as the program
// and never change, so the functions below may be called from any number of threads.
std::span<const Architecture* const> architectures();
// The family with this model_type, of the text model or its wrapper, or with this
// general.architecture; nullptr when there is none.
const Architecture* find_architecture(std::string_view model_type);
const Architecture* find_gguf_architecture(std::string_view name);
std::string supported_gguf_architectures();  // "a, b"
std::string exported_gguf_architectures();
// The family of a configuration that parse_model_config has read; kUnsupported for other model
// types.
Result<const Architecture*> architecture_of(const ModelConfig& config);

// nullptr when the family has no module of that role.
const ResidentRule* find_rule(const Architecture& architecture, ModuleRole role);

// "model.layers.3." + rule.name for layers' rules, rule.name for the model's.
std::string resident_module(const ResidentRule& rule, std::uint32_t layer);
// True when the rule's tensor stands in `layer` of this model.
bool applies_to_layer(const ResidentRule& rule, const ModelConfig& config, std::uint32_t layer);
// The rule's shape in `layer`, which means nothing for modules of the whole model.
std::vector<std::uint64_t> module_shape(const ResidentRule& rule, const ModelConfig& config,
                                        std::uint32_t layer);
// False where the sizes of this model leave no such module in `layer`, as without a shared expert.
bool exists_in(const ResidentRule& rule, const ModelConfig& config, std::uint32_t layer);
// True for the norms that hold a factor or 1 less than it, by the model's convention.
bool follows_norm_convention(ModuleRole role);

// Where V heads lie in a tensor.
struct VHeadPlace {
  bool in_columns = false;
  std::uint64_t first = 0;  // row; those before it are of queries and keys
  std::uint64_t unit = 1;   // rows or columns of a head
};
// nullopt for tensors without V heads.
std::optional<VHeadPlace> v_head_place(const ResidentRule& rule, const ModelConfig& config);

}  // namespace moepack
