// What the tensors of a checkpoint are called, and what each of them is for: one table per
// architecture. How a checkpoint is laid out (wrapper prefixes, one tensor per expert, fused or
// stacked experts) is told by names alone, never by model_type.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convert/source/row_gather.h"
#include "formats/config/model_config.h"

namespace moepack {

enum class TensorRole : std::uint8_t {
  kResident,  // kept in memory by the runtime
  kFused,     // holds the rows of several residents: split_fused
  kExpert,    // belongs to routed experts
  kSkipped,   // of a part that is not run (vision tower, multi-token prediction)
  kUnknown,
};

// The component of a module that a tensor holds.
enum class TensorPart : std::uint8_t { kWeight, kScales, kBiases };

// The matrix of an expert that a tensor holds. kGateUp: rows of gate, then rows of up.
enum class ExpertMatrix : std::uint8_t { kGate, kUp, kDown, kGateUp };
constexpr std::size_t kExpertMatrices = 4;

// In which layers a resident tensor must stand.
enum class LayerScope : std::uint8_t { kModel, kEveryLayer, kLinearAttention, kFullAttention };

// How far a resident tensor may be rounded when the user asks for it.
enum class Rounding : std::uint8_t {
  kNever,     // norms, convolutions, the parameters of the decay
  kAtLeast8,  // the router and the shared expert's gate: they choose, so errors do not average out
  kAsAsked,
};

struct ResidentRule {
  std::string_view name;       // below "model.layers.N." for the scopes of layers
  std::string_view gguf_name;  // llama.cpp's, below "blk.N." for the scopes of layers
  LayerScope scope;
  Rounding rounding;
  bool has_weight_suffix;  // false: the tensor is called `name` itself
  // The logical shape; {channels, 1, taps} may also be written {channels, taps, 1}.
  std::vector<std::uint64_t> (*shape)(const ModelConfig&);
};

// One resident within a fused tensor of a linear-attention layer.
struct FusedPart {
  std::string_view rule;  // ResidentRule::name
  RowRuns (*rows)(const ModelConfig&);
};

struct FusedRule {
  std::string_view name;       // as ResidentRule's
  std::string_view gguf_name;  // as ResidentRule's
  bool usual_in_gguf;          // false: only old files have it
  std::vector<std::uint64_t> (*shape)(const ModelConfig&);
  std::array<FusedPart, 2> parts;
};

struct PrefixRule {
  std::string_view source;
  std::string_view canonical;
};

struct ArchitectureNames {
  std::span<const std::string_view> model_types;
  std::string_view text_model_type;           // what config.json calls the bare text model
  std::string_view model_class;               // of transformers, for that config.json
  std::string_view gguf_architecture;         // general.architecture of GGUF files
  bool gguf_tiles_v_heads;                    // llama.cpp's converter reorders V heads
  std::span<const PrefixRule> prefixes;       // the first that fits is taken
  std::span<const std::string_view> skipped;  // prefixes of source names
  std::span<const ResidentRule> residents;
  std::span<const FusedRule> fused;
  std::string_view output_head;  // may be absent when embeddings are tied
  std::string_view conv1d;       // the rule whose shape tells the conventions
};

struct TensorName {
  TensorRole role = TensorRole::kUnknown;
  TensorPart part = TensorPart::kWeight;
  std::string module;                  // canonical, without .weight, .scales, .biases
  std::uint32_t layer = 0;             // of experts and layers' residents
  const ResidentRule* rule = nullptr;  // residents
  const FusedRule* fused = nullptr;    // fused tensors, and residents within them
  const FusedPart* fused_part = nullptr;
  ExpertMatrix matrix = ExpertMatrix::kGate;
  std::optional<std::uint32_t> expert;  // nullopt: all experts in one tensor
};

// nullptr when no table covers `model_type` (of the text model or its wrapper).
const ArchitectureNames* find_architecture(std::string_view model_type);

TensorName classify_tensor(const ArchitectureNames& names, std::string_view source_name);

// The residents within a tensor of role kFused.
std::array<TensorName, 2> split_fused(const ArchitectureNames& names, const TensorName& fused);

// nullptr when no table covers that general.architecture of a GGUF file.
const ArchitectureNames* find_gguf_architecture(std::string_view name);
std::string supported_gguf_architectures();  // "a, b"
// A tensor of a GGUF file, by llama.cpp's names. Blocks from `num_layers` on are those that predict
// further tokens: skipped.
TensorName classify_gguf_tensor(const ArchitectureNames& names, std::string_view name,
                                std::uint32_t num_layers);
// "blk.3." + rule.gguf_name for layers' rules, rule.gguf_name for the model's.
std::string gguf_tensor_name(const ResidentRule& rule, std::uint32_t layer);
std::string gguf_tensor_name(const FusedRule& rule, std::uint32_t layer);
// All experts of the layer: "blk.3.ffn_gate_exps.weight".
std::string gguf_tensor_name(ExpertMatrix matrix, std::uint32_t layer);

// `source_name` with the wrapper's prefix replaced; nullopt when no prefix fits.
std::optional<std::string> canonical_name(const ArchitectureNames& names,
                                          std::string_view source_name);

// "model.layers.3." + rule.name for layers' rules, rule.name for the model's.
std::string resident_module(const ResidentRule& rule, std::uint32_t layer);
// True when the rule's tensor stands in `layer` of this model.
bool applies_to_layer(const ResidentRule& rule, const ModelConfig& config, std::uint32_t layer);

}  // namespace moepack
