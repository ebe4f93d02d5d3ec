// Which texts are allowed, as a graph on bytes with calls: nodes lead to nodes by bytes, by choice,
// by calls of parts that return, and by counted repetitions.
//
// Graphs are built from the end: a function that adds a part takes the node that follows it and
// returns the node where the part begins.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moepack {

using ByteSet = std::bitset<256>;
ByteSet byte_range(unsigned first, unsigned last);  // both included
ByteSet bytes_of(std::string_view bytes);

using GrammarNodeId = std::uint32_t;

// Which tokens may go over a byte. Markers are the tokens of a vocabulary that stand for themselves
// (TokenBytes): they are no text.
enum class ByteKind : std::uint8_t {
  kText,    // ordinary tokens
  kFrame,   // all tokens
  kMarker,  // the marker alone, if the vocabulary has it; else ordinary tokens
};

// Whether tokens of plain characters (TokenBytes) are allowed at a node without being looked at.
enum class PlainUse : std::uint8_t {
  kNone,
  kAlways,    // any number, and they lead back to the node
  kRepeated,  // each character is a turn of the repetition that is the caller
};

struct GrammarEdge {
  ByteSet bytes;
  GrammarNodeId to = 0;
};

struct GrammarNode {
  enum class Kind : std::uint8_t { kBytes, kChoice, kCall, kRepeat, kKeys, kReturn, kEnd };
  static constexpr std::uint32_t kNoMaximum = 0xFFFFFFFF;
  static constexpr std::uint32_t kNever = 0xFFFFFFFF;

  Kind kind = Kind::kChoice;
  ByteKind bytes = ByteKind::kText;
  PlainUse plain = PlainUse::kNone;
  std::uint32_t marker = 0;            // kMarker: which of markers()
  bool ends_marker = false;            // kMarker: its last byte
  std::uint32_t first = 0, count = 0;  // kBytes: of edges; kChoice, kKeys: of targets
  GrammarNodeId body = 0, next = 0;    // kCall, kRepeat; kKeys: next
  std::uint32_t min = 0, max = 0;      // kRepeat: turns
  std::uint64_t required = 0;          // kKeys: targets that must have been taken, as bits
  // The fewest frames of calls that must be open at once to come from here to the end of the part;
  // kNever: no text leads there.
  std::uint32_t need = kNever;
  // The fewest tokens of one byte each from here to the end of the part; where markers are text,
  // and where each is one token. kNever: none, or too many to count.
  std::uint32_t fewest_as_text = kNever, fewest_with_markers = kNever;
};

class GrammarGraph {
 public:
  static constexpr std::size_t kMaxNodes = 400000;
  static constexpr std::size_t kMaxKeys = 64;

  GrammarGraph();

  GrammarNodeId part_end() const { return 0; }  // returns to the caller
  GrammarNodeId text_end() const { return 1; }
  GrammarNodeId never() const { return 2; }

  GrammarNodeId bytes(const ByteSet& set, GrammarNodeId next, ByteKind kind = ByteKind::kText);
  GrammarNodeId bytes(std::span<const GrammarEdge> edges, ByteKind kind = ByteKind::kText,
                      PlainUse plain = PlainUse::kNone);
  GrammarNodeId choice(std::span<const GrammarNodeId> targets);
  GrammarNodeId choice(std::initializer_list<GrammarNodeId> targets) {
    return choice(std::span(targets.begin(), targets.size()));
  }
  GrammarNodeId maybe(GrammarNodeId part, GrammarNodeId next) { return choice({part, next}); }
  GrammarNodeId literal(std::string_view text, GrammarNodeId next, ByteKind kind = ByteKind::kText);
  // One of the texts, each with what follows it; common beginnings are one path.
  GrammarNodeId literals(std::vector<std::pair<std::string, GrammarNodeId>> texts,
                         ByteKind kind = ByteKind::kText);
  // A token of the vocabulary if there is one with this text, else the text.
  GrammarNodeId marker(std::string_view text, GrammarNodeId next);
  // `body` ends with part_end().
  GrammarNodeId call(GrammarNodeId body, GrammarNodeId next);
  GrammarNodeId repeat(GrammarNodeId body, std::uint32_t min, std::uint32_t max,
                       GrammarNodeId next);
  // The bodies in any order, each at most once, those of `required` (bits) at least once. At most
  // kMaxKeys.
  GrammarNodeId keys(std::span<const GrammarNodeId> bodies, std::uint64_t required,
                     GrammarNodeId next);
  // A node whose target is given later, for parts that contain themselves.
  GrammarNodeId later();
  void set_later(GrammarNodeId node, GrammarNodeId target);

  // Computes what nodes need and the fewest tokens behind them. To be called when the graph is
  // complete; again, if something was added. With `first` only those of the nodes from there on,
  // which is enough for parts that lead to earlier nodes alone where those are settled.
  void finish(GrammarNodeId first = 0);
  // `node.fewest…` with `value` turns begun (kRepeat) or targets taken (kKeys).
  std::uint64_t fewest_from(const GrammarNode& node, std::uint64_t value, bool has_markers) const;

  bool is_too_large() const { return is_too_large_; }
  std::size_t size() const { return nodes_.size(); }
  const GrammarNode& node(GrammarNodeId id) const { return nodes_[id]; }
  std::span<const GrammarEdge> edges(const GrammarNode& node) const {
    return {edges_.data() + node.first, node.count};
  }
  std::span<const GrammarNodeId> targets(const GrammarNode& node) const {
    return {targets_.data() + node.first, node.count};
  }
  const std::vector<std::string>& markers() const { return markers_; }

 private:
  GrammarNodeId add(GrammarNode node);
  std::uint32_t need_of(const GrammarNode& node) const;
  bool settle(GrammarNode& node) const;

  std::vector<GrammarNode> nodes_;
  std::vector<GrammarEdge> edges_;
  std::vector<GrammarNodeId> targets_;
  std::vector<std::string> markers_;
  bool is_too_large_ = false;
};

}  // namespace moepack
