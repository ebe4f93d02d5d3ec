#include "runtime/constrain/grammar_graph.h"

#include <algorithm>

namespace moepack {

ByteSet byte_range(unsigned first, unsigned last) {
  ByteSet set;
  for (unsigned byte = first; byte <= last; ++byte) set.set(byte);
  return set;
}

ByteSet bytes_of(std::string_view bytes) {
  ByteSet set;
  for (const char byte : bytes) set.set(static_cast<unsigned char>(byte));
  return set;
}

GrammarGraph::GrammarGraph() {
  nodes_.push_back({.kind = GrammarNode::Kind::kReturn});
  nodes_.push_back({.kind = GrammarNode::Kind::kEnd});
  nodes_.push_back({.kind = GrammarNode::Kind::kChoice});
}

GrammarNodeId GrammarGraph::add(GrammarNode node) {
  const bool is_full = nodes_.size() + edges_.size() + targets_.size() >= kMaxNodes;
  is_too_large_ = is_too_large_ || is_full;
  if (is_too_large_) return never();  // a node without its edges would lead anywhere
  nodes_.push_back(node);
  return static_cast<GrammarNodeId>(nodes_.size() - 1);
}

GrammarNodeId GrammarGraph::bytes(const ByteSet& set, GrammarNodeId next, ByteKind kind) {
  const GrammarEdge edge{set, next};
  return bytes(std::span(&edge, 1), kind);
}

GrammarNodeId GrammarGraph::bytes(std::span<const GrammarEdge> edges, ByteKind kind,
                                  PlainUse plain) {
  if (edges.empty()) return never();
  const auto first = static_cast<std::uint32_t>(edges_.size());
  const GrammarNodeId node = add({.kind = GrammarNode::Kind::kBytes,
                                  .bytes = kind,
                                  .plain = plain,
                                  .first = first,
                                  .count = static_cast<std::uint32_t>(edges.size())});
  if (node != never()) edges_.insert(edges_.end(), edges.begin(), edges.end());
  return node;
}

GrammarNodeId GrammarGraph::choice(std::span<const GrammarNodeId> targets) {
  if (targets.empty()) return never();
  if (targets.size() == 1) return targets.front();
  const auto first = static_cast<std::uint32_t>(targets_.size());
  const GrammarNodeId node = add({.kind = GrammarNode::Kind::kChoice,
                                  .first = first,
                                  .count = static_cast<std::uint32_t>(targets.size())});
  if (node != never()) targets_.insert(targets_.end(), targets.begin(), targets.end());
  return node;
}

GrammarNodeId GrammarGraph::literal(std::string_view text, GrammarNodeId next, ByteKind kind) {
  for (std::size_t i = text.size(); i-- > 0;) next = bytes(bytes_of(text.substr(i, 1)), next, kind);
  return next;
}

GrammarNodeId GrammarGraph::literals(std::vector<std::pair<std::string, GrammarNodeId>> texts,
                                     ByteKind kind) {
  std::sort(texts.begin(), texts.end());
  // What lies behind the first `depth` bytes, which [begin, end) have in common.
  struct Range {
    std::size_t begin, end, depth;
  };
  // A text may be long: no recursion. Ranges are split until they are single texts, and joined
  // from the last to the first.
  std::vector<Range> ranges = {{0, texts.size(), 0}};
  struct Children {
    std::vector<std::size_t> ranges;  // of `ranges`
    std::vector<GrammarNodeId> ends;
  };
  std::vector<Children> children;
  for (std::size_t i = 0; i < ranges.size() && ranges.size() < kMaxNodes; ++i) {
    const Range range = ranges[i];
    children.emplace_back();
    std::size_t at = range.begin;
    for (; at < range.end && texts[at].first.size() == range.depth; ++at) {
      children[i].ends.push_back(texts[at].second);
    }
    while (at < range.end) {
      std::size_t end = at;
      while (end < range.end && texts[end].first[range.depth] == texts[at].first[range.depth]) {
        ++end;
      }
      children[i].ranges.push_back(ranges.size());
      ranges.push_back({at, end, range.depth + 1});
      at = end;
    }
  }
  is_too_large_ = is_too_large_ || children.size() < ranges.size();
  if (is_too_large_) return never();
  std::vector<GrammarNodeId> nodes(ranges.size());
  for (std::size_t i = ranges.size(); i-- > 0;) {
    std::vector<GrammarEdge> edges;
    for (const std::size_t child : children[i].ranges) {
      const Range& range = ranges[child];
      edges.push_back(
          {bytes_of(std::string_view(texts[range.begin].first).substr(range.depth - 1, 1)),
           nodes[child]});
    }
    std::vector<GrammarNodeId>& ways = children[i].ends;
    if (!edges.empty()) ways.push_back(bytes(edges, kind));
    nodes[i] = choice(ways);
  }
  return nodes.front();
}

GrammarNodeId GrammarGraph::marker(std::string_view text, GrammarNodeId next) {
  const auto found = std::find(markers_.begin(), markers_.end(), text);
  const auto index = static_cast<std::uint32_t>(found - markers_.begin());
  if (found == markers_.end()) markers_.emplace_back(text);
  for (std::size_t i = text.size(); i-- > 0;) {
    next = bytes(bytes_of(text.substr(i, 1)), next, ByteKind::kMarker);
    if (next == never()) return next;
    nodes_[next].marker = index;
    nodes_[next].ends_marker = i + 1 == text.size();
  }
  return next;
}

GrammarNodeId GrammarGraph::call(GrammarNodeId body, GrammarNodeId next) {
  return add({.kind = GrammarNode::Kind::kCall, .body = body, .next = next});
}

GrammarNodeId GrammarGraph::repeat(GrammarNodeId body, std::uint32_t min, std::uint32_t max,
                                   GrammarNodeId next) {
  if (max == 0) return min == 0 ? next : never();
  return add(
      {.kind = GrammarNode::Kind::kRepeat, .body = body, .next = next, .min = min, .max = max});
}

GrammarNodeId GrammarGraph::keys(std::span<const GrammarNodeId> bodies, std::uint64_t required,
                                 GrammarNodeId next) {
  if (bodies.empty()) return next;
  const auto first = static_cast<std::uint32_t>(targets_.size());
  const GrammarNodeId node = add({.kind = GrammarNode::Kind::kKeys,
                                  .first = first,
                                  .count = static_cast<std::uint32_t>(bodies.size()),
                                  .next = next,
                                  .required = required});
  if (node != never()) targets_.insert(targets_.end(), bodies.begin(), bodies.end());
  return node;
}

GrammarNodeId GrammarGraph::later() {
  const auto first = static_cast<std::uint32_t>(targets_.size());
  const GrammarNodeId node = add({.kind = GrammarNode::Kind::kChoice, .first = first, .count = 1});
  if (node != never()) targets_.push_back(never());
  return node;
}

void GrammarGraph::set_later(GrammarNodeId node, GrammarNodeId target) {
  if (node != never()) targets_[nodes_[node].first] = target;
}

// One more frame than `body` needs, or what follows; both where the body must be gone through.
std::uint32_t GrammarGraph::need_of(const GrammarNode& node) const {
  constexpr std::uint32_t kNever = GrammarNode::kNever;
  const auto framed = [&](GrammarNodeId id) {
    return nodes_[id].need == kNever ? kNever : nodes_[id].need + 1;
  };
  std::uint32_t need = kNever;
  switch (node.kind) {
    case GrammarNode::Kind::kBytes:
      for (const GrammarEdge& edge : edges(node)) need = std::min(need, nodes_[edge.to].need);
      return need;
    case GrammarNode::Kind::kChoice:
      for (const GrammarNodeId target : targets(node)) need = std::min(need, nodes_[target].need);
      return need;
    case GrammarNode::Kind::kCall:
      return std::max(framed(node.body), nodes_[node.next].need);
    case GrammarNode::Kind::kRepeat:
      need = nodes_[node.next].need;
      return node.min == 0 ? need : std::max(need, framed(node.body));
    case GrammarNode::Kind::kKeys:
      need = nodes_[node.next].need;
      for (std::size_t i = 0; i < node.count; ++i) {
        if ((node.required >> i & 1U) != 0) need = std::max(need, framed(targets(node)[i]));
      }
      return need;
    case GrammarNode::Kind::kReturn:
    case GrammarNode::Kind::kEnd:
      return 0;
  }
  return kNever;
}

// Sums over what must be gone through: the turns and keys that are still missing.
std::uint64_t GrammarGraph::fewest_from(const GrammarNode& node, std::uint64_t value,
                                        bool has_markers) const {
  constexpr std::uint64_t kNever = GrammarNode::kNever;
  const auto of = [&](GrammarNodeId id) -> std::uint64_t {
    return has_markers ? nodes_[id].fewest_with_markers : nodes_[id].fewest_as_text;
  };
  std::uint64_t fewest = kNever;
  switch (node.kind) {
    case GrammarNode::Kind::kBytes: {
      for (const GrammarEdge& edge : edges(node)) fewest = std::min(fewest, of(edge.to));
      const bool is_within = has_markers && node.bytes == ByteKind::kMarker && !node.ends_marker;
      return std::min(kNever, fewest + (is_within ? 0 : 1));
    }
    case GrammarNode::Kind::kChoice:
      for (const GrammarNodeId target : targets(node)) fewest = std::min(fewest, of(target));
      return fewest;
    case GrammarNode::Kind::kCall:
      return std::min(kNever, of(node.body) + of(node.next));
    case GrammarNode::Kind::kRepeat: {
      const std::uint64_t missing = node.min > value ? node.min - value : 0;
      // Below 2^64: both are below 2^32.
      const std::uint64_t turns = missing == 0 ? 0 : missing * of(node.body);
      return std::min(kNever, std::min(kNever, turns) + of(node.next));
    }
    case GrammarNode::Kind::kKeys:
      fewest = of(node.next);
      for (std::size_t i = 0; i < node.count; ++i) {
        if (((node.required & ~value) >> i & 1U) != 0) fewest += of(targets(node)[i]);
      }
      return std::min(kNever, fewest);
    case GrammarNode::Kind::kReturn:
    case GrammarNode::Kind::kEnd:
      return 0;
  }
  return kNever;
}

// Whether anything of the node has changed.
bool GrammarGraph::settle(GrammarNode& node) const {
  const auto fall = [](std::uint32_t& value, std::uint64_t to) {
    if (to >= value) return false;
    value = static_cast<std::uint32_t>(to);
    return true;
  };
  bool is_changed = fall(node.need, need_of(node));
  is_changed = fall(node.fewest_as_text, fewest_from(node, 0, false)) || is_changed;
  return fall(node.fewest_with_markers, fewest_from(node, 0, true)) || is_changed;
}

// Values only fall. A pass upwards settles what follows a node, one downwards what it calls: few
// passes do, and what is not settled then counts as more than it is, or as never.
void GrammarGraph::finish(GrammarNodeId first) {
  constexpr int kMaxPasses = 200;
  const std::size_t count = nodes_.size() - first;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    bool is_changed = false;
    for (std::size_t i = 0; i < count; ++i) {
      is_changed = settle(nodes_[first + (pass % 2 == 0 ? i : count - 1 - i)]) || is_changed;
    }
    if (!is_changed) return;
  }
}

}  // namespace moepack
