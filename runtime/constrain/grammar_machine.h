// Reads a text by a graph: a state is all ways in which what was read can stand in the graph, each
// a place with the calls that are open. States and their successors are made when they are needed
// and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/constrain/grammar_graph.h"

namespace moepack {

// Used by one thread at a time. Memory is bounded: callers ask is_full() now and then and forget().
class GrammarMachine {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0;  // no text goes on like this
  // Open calls; those of a nested value are five at most, and values nested deeper than about 60
  // are left out.
  static constexpr std::uint32_t kMaxOpenCalls = 256;
  // Ways of one state; of more the first are kept, so that texts may be refused that the graph
  // allows, but never the other way round.
  static constexpr std::size_t kMaxWays = 2000;

  // `graph` is complete and outlives the machine. is_bound: for each of graph.markers(), whether it
  // is a token of the vocabulary.
  GrammarMachine(const GrammarGraph& graph, std::vector<bool> is_bound);

  State start(GrammarNodeId node);
  // The state after one more byte of a text token, or of a marker.
  State step(State state, std::uint8_t byte, bool is_marker) {
    const State known = is_marker ? kUnknown : states_[state].next[byte];
    return known != kUnknown ? known : make_step(state, byte, is_marker);
  }
  bool may_end(State state) const { return states_[state].may_end; }
  // The fewest tokens that complete the text, one for each byte of text and each marker; the end
  // token not included. Never more than one below that of the best next token. kDead: 0.
  std::uint64_t fewest(State state) const { return states_[state].fewest; }
  // Tokens of at most `characters` plain characters (TokenBytes) are allowed; with `is_all` no
  // longer ones are.
  struct PlainRoom {
    std::size_t characters = 0;
    bool is_all = true;
    std::uint64_t fewest = 0;  // the most that fewest() can be after one of them
  };
  PlainRoom plain_room(State state) const;

  bool is_full() const;
  // Forgets all states but this one, which gets a new number.
  State forget_all_but(State state);

 private:
  static constexpr State kUnknown = 0xFFFFFFFF;
  using Place = std::uint32_t;  // index of places_
  struct PlaceData {
    GrammarNodeId node = 0;
    Place parent = 0;         // the open call around it, a place that reading goes on from
    std::uint64_t value = 0;  // kRepeat: turns begun; kKeys: targets taken
    std::uint32_t depth = 0;
    std::uint64_t fewest = 0;  // tokens to the end of the text
  };
  struct PlaceHash {
    std::size_t operator()(const PlaceData& p) const;
  };
  struct PlaceEqual {
    bool operator()(const PlaceData& a, const PlaceData& b) const {
      return a.node == b.node && a.parent == b.parent && a.value == b.value;
    }
  };
  struct StateData {
    std::uint32_t first = 0, count = 0;  // of ways_
    bool may_end = false;
    std::uint64_t fewest = 0;
    std::unique_ptr<State[]> next;  // [256]
  };

  State make_step(State state, std::uint8_t byte, bool is_marker);
  Place place(GrammarNodeId node, Place parent, std::uint64_t value);
  bool is_open_to(ByteKind kind, std::uint32_t marker, bool is_marker) const;
  void reset();
  void begin_step();
  // Adds to reached_ the places that read a byte or end the text, from a node without reading.
  void visit(GrammarNodeId node, Place parent);
  void enter(GrammarNodeId node, Place around, std::uint64_t value);
  void expand(Place at);
  void expand_repeat(const PlaceData& here, const GrammarNode& node);
  void expand_keys(const PlaceData& here, const GrammarNode& node);
  State state_of_reached();
  std::span<const Place> ways(const StateData& state) const {
    return {ways_.data() + state.first, state.count};
  }
  Place copy_place(const std::vector<PlaceData>& old, Place at,
                   std::unordered_map<Place, Place>& copies);

  const GrammarGraph& graph_;
  std::vector<bool> is_bound_;
  bool has_markers_;  // all are tokens; else all count as text, which is never too few
  ByteSet plain_bytes_;
  std::vector<PlaceData> places_;  // the first is the bottom of all
  std::unordered_map<PlaceData, Place, PlaceHash, PlaceEqual> place_of_;
  std::vector<StateData> states_;  // the first is kDead
  std::vector<Place> ways_;
  std::unordered_multimap<std::uint64_t, State> state_of_;  // by a hash of its ways
  std::unordered_map<std::uint64_t, State> marker_steps_;
  // Of the step that is being made.
  std::vector<Place> reached_, open_;
  std::vector<std::uint32_t> seen_;  // by place: the last step that came there
  std::uint32_t round_ = 0;
  std::size_t visits_ = 0;
};

}  // namespace moepack
