#include "convert/source/source_naming.h"

namespace moepack {

std::string SourceNaming::resident(const ResidentRule& rule, std::uint32_t layer) const {
  for (const FusedRule& fused : names_.fused) {
    const bool holds = fused.parts[0].rule == rule.name || fused.parts[1].rule == rule.name;
    if (!holds || (is_gguf_ && !fused.usual_in_gguf)) continue;
    const std::string number = std::to_string(layer);
    return is_gguf_ ? "blk." + number + "." + std::string(fused.gguf_name)
                    : "model.layers." + number + "." + std::string(fused.name) + ".weight";
  }
  if (is_gguf_) return gguf_tensor_name(rule, layer);
  const std::string module = resident_module(rule, layer);
  return rule.has_weight_suffix ? module + ".weight" : module;
}

std::string SourceNaming::expert(std::uint32_t layer, std::uint32_t expert,
                                 Projection projection) const {
  const std::string number = std::to_string(layer);
  const std::string name(projection_name(projection));
  if (!is_gguf_) {
    return "model.layers." + number + ".mlp.experts." + std::to_string(expert) + "." + name +
           ".weight";
  }
  // gate_proj is ffn_gate_exps there.
  return "blk." + number + ".ffn_" + name.substr(0, name.find('_')) + "_exps.weight";
}

}  // namespace moepack
