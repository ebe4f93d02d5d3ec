#include "runtime/constrain/key_choice.h"

namespace moepack {

GrammarNodeId KeyChoice::add(std::string_view text, GrammarNodeId next) {
  std::vector<std::uint32_t> path = {0};
  for (const char byte : text) {
    const auto fresh = static_cast<std::uint32_t>(nodes_.size());
    auto& children = nodes_[path.back()].children;
    const auto [child, is_new] = children.emplace(static_cast<unsigned char>(byte), fresh);
    path.push_back(child->second);
    if (is_new) nodes_.emplace_back();
  }
  nodes_[path.back()].node = next;
  std::vector<GrammarEdge> edges;
  for (std::size_t depth = text.size(); depth-- > 0;) {
    Node& here = nodes_[path[depth]];
    edges.clear();
    for (const auto& [byte, child] : here.children) {
      edges.push_back({byte_range(byte, byte), nodes_[child].node});
    }
    here.node = graph_.bytes(edges);
    copies_ += edges.size() - 1;
  }
  return nodes_.front().node;
}

}  // namespace moepack
