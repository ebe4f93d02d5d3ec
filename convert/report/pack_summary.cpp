#include "convert/report/pack_summary.h"

#include <set>

namespace moepack {

std::string pack_formats(const PackManifest& pack) {
  std::set<std::string> names;
  for (const ExpertLayout& layout : pack.layouts) {
    for (const ProjectionLayout& p : layout.projections) names.insert(to_string(p.format));
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

double pack_bits_per_weight(const PackManifest& pack) {
  double bits = 0;
  double weights = 0;
  for (std::uint32_t l = 0; l < pack.num_layers; ++l) {
    for (std::uint32_t e = 0; e < pack.experts_of(l); ++e) {
      const ExpertLayout& layout = pack.layout_of(l, e);
      bits += 8.0 * static_cast<double>(layout.record_bytes);
      for (const ProjectionLayout& p : layout.projections) {
        weights += static_cast<double>(p.rows) * static_cast<double>(p.cols);
      }
    }
  }
  return weights > 0 ? bits / weights : 0;
}

}  // namespace moepack
