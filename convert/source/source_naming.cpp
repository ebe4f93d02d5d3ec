#include "convert/source/source_naming.h"

namespace moepack {

std::string SourceNaming::resident(const ResidentRule& rule, std::uint32_t layer) const {
  for (const FusedRule& fused : names_.fused) {
    const bool holds = fused.parts[0].role == rule.role || fused.parts[1].role == rule.role;
    if (!holds || (is_gguf_ && !fused.usual_in_gguf)) continue;
    const std::string number = std::to_string(layer);
    return is_gguf_ ? "blk." + number + "." + std::string(fused.gguf_name)
                    : "model.layers." + number + "." + std::string(fused.name) +
                          (fused.has_weight_suffix ? ".weight" : "");
  }
  if (is_gguf_) return gguf_tensor_name(rule, layer);
  const std::string module = resident_module(rule, layer);
  return rule.has_weight_suffix ? module + ".weight" : module;
}

std::string SourceNaming::expert(std::uint32_t layer, std::uint32_t expert,
                                 Projection projection) const {
  // Projections are in the order of ExpertMatrix.
  const auto matrix = static_cast<ExpertMatrix>(projection);
  if (is_gguf_) return gguf_tensor_name(names_, matrix, layer);
  const ExpertNames& names = *names_.experts;
  return "model.layers." + std::to_string(layer) + "." + std::string(names.folder) +
         std::to_string(expert) + "." +
         std::string(names.matrices[static_cast<std::size_t>(matrix)]) + ".weight";
}

}  // namespace moepack
