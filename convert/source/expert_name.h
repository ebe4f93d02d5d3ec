// The names under which experts are asked for and reported, the same for every source and pack:
// "model.layers.3.mlp.experts.17.gate_proj", with the suffix of a component
// (formats/weights/component.h) for that alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/weights/expert_layout.h"

namespace moepack {

struct ExpertName {
  std::uint32_t layer = 0;
  std::uint32_t expert = 0;
  Projection projection = Projection::kGate;
  Component part = Component::kCodes;  // also without a suffix
};

// nullopt for any other form. The numbers may lie beyond the model.
std::optional<ExpertName> parse_expert_name(std::string_view name);
// Without a component's suffix.
std::string expert_name(std::uint32_t layer, std::uint32_t expert, Projection projection);

}  // namespace moepack
