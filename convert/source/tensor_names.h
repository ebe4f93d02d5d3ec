// What the tensors of a checkpoint or a GGUF file are for, told by their names and the table of
// their architecture. How a checkpoint is laid out (wrapper prefixes, one tensor per expert, fused
// or stacked experts) is told by names alone, never by model_type.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/config/architecture.h"
#include "formats/weights/component.h"

namespace moepack {

enum class TensorRole : std::uint8_t {
  kResident,  // kept in memory by the runtime
  kFused,     // holds the rows of several residents: split_fused
  kExpert,    // belongs to routed experts
  kSkipped,   // of a part that is not run (vision tower)
  kPredicts,  // of what predicts further tokens; not run either
  kUnused,    // beside a weight whose decoding does not need it (a shape, scales of activations)
  kUnknown,
};

struct TensorName {
  TensorRole role = TensorRole::kUnknown;
  Component part = Component::kCodes;
  std::string module;                  // canonical, without the suffix of the component
  std::uint32_t layer = 0;             // of experts and layers' residents
  const ResidentRule* rule = nullptr;  // residents
  const FusedRule* fused = nullptr;    // fused tensors, and residents within them
  const FusedPart* fused_part = nullptr;
  ExpertMatrix matrix = ExpertMatrix::kGate;
  std::optional<std::uint32_t> expert;  // nullopt: all experts in one tensor
};

TensorName classify_tensor(const Architecture& names, std::string_view source_name);
// The same for a model of this configuration: its prediction layers are told by their numbers.
TensorName classify_tensor(const Architecture& names, std::string_view source_name,
                           const ModelConfig& config);

// The residents within a tensor of role kFused.
std::array<TensorName, 2> split_fused(const Architecture& names, const TensorName& fused);

// A tensor of a GGUF file, by llama.cpp's names. Blocks from `num_layers` on are those that predict
// further tokens.
TensorName classify_gguf_tensor(const Architecture& names, std::string_view name,
                                std::uint32_t num_layers);
// "blk.3." + rule.gguf_name for layers' rules, rule.gguf_name for the model's.
std::string gguf_tensor_name(const ResidentRule& rule, std::uint32_t layer);
std::string gguf_tensor_name(const FusedRule& rule, std::uint32_t layer);
// All experts of the layer: "blk.3.ffn_gate_exps.weight".
std::string gguf_tensor_name(const Architecture& names, ExpertMatrix matrix, std::uint32_t layer);

// `source_name` with the wrapper's prefix replaced; nullopt when no prefix fits.
std::optional<std::string> canonical_name(const Architecture& names, std::string_view source_name);

}  // namespace moepack
