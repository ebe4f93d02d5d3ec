#include "convert/source/expert_name.h"

namespace moepack {
namespace {

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Removes a decimal number of at most seven digits, without leading zeros.
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::size_t digits = 0;
  std::uint32_t value = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    if (digits == 7) return std::nullopt;
    value = value * 10 + static_cast<std::uint32_t>(text[digits++] - '0');
  }
  if (digits == 0 || (digits > 1 && text[0] == '0')) return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

}  // namespace

std::optional<ExpertName> parse_expert_name(std::string_view name) {
  ExpertName out;
  out.part = take_component_suffix(name).value_or(Component::kCodes);
  if (!take(name, "model.layers.")) return std::nullopt;
  const auto layer = take_number(name);
  if (!layer.has_value() || !take(name, ".mlp.experts.")) return std::nullopt;
  const auto expert = take_number(name);
  if (!expert.has_value() || !take(name, ".")) return std::nullopt;
  out.layer = *layer;
  out.expert = *expert;
  for (Projection p : kAllProjections) {
    if (name != projection_name(p)) continue;
    out.projection = p;
    return out;
  }
  return std::nullopt;
}

std::string expert_name(std::uint32_t layer, std::uint32_t expert, Projection projection) {
  return "model.layers." + std::to_string(layer) + ".mlp.experts." + std::to_string(expert) + "." +
         std::string(projection_name(projection));
}

}  // namespace moepack
