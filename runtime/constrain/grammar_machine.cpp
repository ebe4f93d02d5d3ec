#include "runtime/constrain/grammar_machine.h"

#include <algorithm>
#include <limits>

#include "runtime/constrain/token_bytes.h"

namespace moepack {
namespace {

constexpr std::size_t kMaxPlaces = 300000;
constexpr std::size_t kMaxStates = 8192;
constexpr std::size_t kMaxStoredWays = std::size_t{4} << 20U;
constexpr std::size_t kMaxVisits = 50000;  // of one step

std::uint64_t mixed(std::uint64_t x) {  // splitmix64's finalizer
  x ^= x >> 30U;
  x *= 0xBF58476D1CE4E5B9U;
  x ^= x >> 27U;
  x *= 0x94D049BB133111EBU;
  return x ^ x >> 31U;
}

}  // namespace

std::size_t GrammarMachine::PlaceHash::operator()(const PlaceData& p) const {
  const std::uint64_t at = std::uint64_t{p.node} << 32U | p.parent;
  return mixed(mixed(at + 0x9E3779B97F4A7C15U) + p.value);
}

GrammarMachine::GrammarMachine(const GrammarGraph& graph, std::vector<bool> is_bound)
    : graph_(graph),
      is_bound_(std::move(is_bound)),
      has_markers_(std::all_of(is_bound_.begin(), is_bound_.end(), [](bool b) { return b; })) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    plain_bytes_.set(byte, TokenBytes::is_plain_byte(static_cast<std::uint8_t>(byte)));
  }
  reset();
}

void GrammarMachine::reset() {
  places_.assign(1, {});
  place_of_.clear();
  states_.clear();
  states_.emplace_back();
  states_[kDead].next = std::make_unique<State[]>(256);  // all dead
  ways_.clear();
  state_of_.clear();
  marker_steps_.clear();
  seen_.assign(1, 0);
  round_ = 0;
}

bool GrammarMachine::is_full() const {
  return places_.size() > kMaxPlaces || states_.size() > kMaxStates ||
         ways_.size() > kMaxStoredWays;
}

GrammarMachine::Place GrammarMachine::place(GrammarNodeId node, Place parent, std::uint64_t value) {
  PlaceData data{node, parent, value, places_[parent].depth + 1};
  const auto [at, is_new] = place_of_.emplace(data, static_cast<Place>(places_.size()));
  if (is_new) {
    const GrammarNode& here = graph_.node(node);
    data.fewest = here.kind == GrammarNode::Kind::kEnd
                      ? 0
                      : graph_.fewest_from(here, value, has_markers_) + places_[parent].fewest;
    places_.push_back(data);
    seen_.push_back(0);
  }
  return at->second;
}

void GrammarMachine::begin_step() {
  ++round_;
  visits_ = 0;
  reached_.clear();
}

GrammarMachine::State GrammarMachine::start(GrammarNodeId node) {
  begin_step();
  visit(node, 0);
  return state_of_reached();
}

bool GrammarMachine::is_open_to(ByteKind kind, std::uint32_t marker, bool is_marker) const {
  switch (kind) {
    case ByteKind::kText:
      return !is_marker;
    case ByteKind::kFrame:
      return true;
    case ByteKind::kMarker:
      return is_marker == is_bound_[marker];
  }
  return false;
}

GrammarMachine::State GrammarMachine::make_step(State state, std::uint8_t byte, bool is_marker) {
  const std::uint64_t key = std::uint64_t{state} << 8U | byte;
  if (is_marker) {
    const auto found = marker_steps_.find(key);
    if (found != marker_steps_.end()) return found->second;
  }
  begin_step();
  const std::uint32_t first = states_[state].first, count = states_[state].count;
  for (std::uint32_t i = 0; i < count; ++i) {
    const PlaceData way = places_[ways_[first + i]];
    const GrammarNode& node = graph_.node(way.node);
    if (node.kind != GrammarNode::Kind::kBytes || !is_open_to(node.bytes, node.marker, is_marker)) {
      continue;
    }
    for (const GrammarEdge& edge : graph_.edges(node)) {
      if (edge.bytes.test(byte)) visit(edge.to, way.parent);
    }
  }
  const State next = state_of_reached();
  if (is_marker) {
    marker_steps_.emplace(key, next);
  } else {
    states_[state].next[byte] = next;
  }
  return next;
}

void GrammarMachine::enter(GrammarNodeId node, Place around, std::uint64_t value) {
  const std::uint32_t need = graph_.node(node).need;
  const bool is_too_deep =
      need == GrammarNode::kNever || places_[around].depth + need > kMaxOpenCalls;
  if (is_too_deep || places_.size() > 2 * kMaxPlaces) return;
  open_.push_back(place(node, around, value));
}

// Depth first, in the order of the graph, so that the ways of a state and their order depend on
// the text alone.
void GrammarMachine::visit(GrammarNodeId node, Place parent) {
  open_.clear();
  enter(node, parent, 0);
  while (!open_.empty() && reached_.size() < kMaxWays && visits_ < kMaxVisits) {
    const Place at = open_.back();
    open_.pop_back();
    if (seen_[at] == round_) continue;
    seen_[at] = round_;
    ++visits_;
    expand(at);
  }
}

void GrammarMachine::expand(Place at) {
  const PlaceData here = places_[at];
  const GrammarNode& node = graph_.node(here.node);
  switch (node.kind) {
    case GrammarNode::Kind::kBytes:
    case GrammarNode::Kind::kEnd:
      reached_.push_back(at);
      break;
    case GrammarNode::Kind::kChoice: {
      const auto targets = graph_.targets(node);
      for (std::size_t i = targets.size(); i-- > 0;) enter(targets[i], here.parent, 0);
      break;
    }
    case GrammarNode::Kind::kCall: {
      // What would return at once needs no frame: parts that call themselves last stay flat.
      const bool is_last = graph_.node(node.next).kind == GrammarNode::Kind::kReturn;
      enter(node.body, is_last ? here.parent : place(node.next, here.parent, 0), 0);
      break;
    }
    case GrammarNode::Kind::kReturn:
      if (here.parent != 0) open_.push_back(here.parent);
      break;
    case GrammarNode::Kind::kRepeat:
      expand_repeat(here, node);
      break;
    case GrammarNode::Kind::kKeys:
      expand_keys(here, node);
      break;
  }
}

void GrammarMachine::expand_repeat(const PlaceData& here, const GrammarNode& node) {
  const std::uint64_t turns = here.value;
  const bool is_counted = node.max != GrammarNode::kNoMaximum || turns < node.min;
  if (turns < node.max) {
    enter(node.body, place(here.node, here.parent, is_counted ? turns + 1 : turns), 0);
  }
  // Entered last, it is gone through first: what leads to the end is kept where ways are too many.
  if (turns >= node.min) enter(node.next, here.parent, 0);
}

void GrammarMachine::expand_keys(const PlaceData& here, const GrammarNode& node) {
  const std::uint64_t taken = here.value;
  const auto targets = graph_.targets(node);
  for (std::size_t i = targets.size(); i-- > 0;) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    if ((taken & bit) != 0) continue;
    enter(targets[i], place(here.node, here.parent, taken | bit), 0);
  }
  if ((taken & node.required) == node.required) enter(node.next, here.parent, 0);
}

GrammarMachine::State GrammarMachine::state_of_reached() {
  if (reached_.empty()) return kDead;
  std::uint64_t hash = reached_.size();
  for (const Place way : reached_) hash = mixed(hash + way + 0x9E3779B97F4A7C15U);
  const auto [begin, end] = state_of_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    const auto known = ways(states_[at->second]);
    if (std::equal(known.begin(), known.end(), reached_.begin(), reached_.end())) return at->second;
  }
  StateData data;
  data.first = static_cast<std::uint32_t>(ways_.size());
  data.count = static_cast<std::uint32_t>(reached_.size());
  data.next = std::make_unique<State[]>(256);
  std::fill_n(data.next.get(), 256, kUnknown);
  data.fewest = std::numeric_limits<std::uint64_t>::max();
  for (const Place way : reached_) {
    data.fewest = std::min(data.fewest, places_[way].fewest);
    data.may_end = data.may_end || graph_.node(places_[way].node).kind == GrammarNode::Kind::kEnd;
  }
  ways_.insert(ways_.end(), reached_.begin(), reached_.end());
  const auto state = static_cast<State>(states_.size());
  states_.push_back(std::move(data));
  state_of_.emplace(hash, state);
  return state;
}

GrammarMachine::PlainRoom GrammarMachine::plain_room(State state) const {
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  PlainRoom room;
  for (const Place way : ways(states_[state])) {
    const PlaceData& here = places_[way];
    const GrammarNode& node = graph_.node(here.node);
    if (node.plain == PlainUse::kAlways) return {kAny, true, here.fewest};
    if (node.plain == PlainUse::kRepeated) {
      const PlaceData& around = places_[here.parent];
      const GrammarNode& caller = graph_.node(around.node);
      if (caller.kind == GrammarNode::Kind::kRepeat) {
        if (caller.max == GrammarNode::kNoMaximum) return {kAny, true, here.fewest};
        room.fewest = std::max(room.fewest, here.fewest);
        // `value` counts the turn that is being read.
        room.characters =
            std::max(room.characters, static_cast<std::size_t>(caller.max - around.value + 1));
        continue;
      }
    }
    if (node.kind != GrammarNode::Kind::kBytes) continue;
    for (const GrammarEdge& edge : graph_.edges(node)) {
      room.is_all = room.is_all && (edge.bytes & plain_bytes_).none();
    }
  }
  return room;
}

GrammarMachine::Place GrammarMachine::copy_place(const std::vector<PlaceData>& old, Place at,
                                                 std::unordered_map<Place, Place>& copies) {
  std::vector<Place> chain;
  for (; at != 0 && copies.count(at) == 0; at = old[at].parent) chain.push_back(at);
  Place copy = at == 0 ? 0 : copies.at(at);
  for (std::size_t i = chain.size(); i-- > 0;) {
    copy = place(old[chain[i]].node, copy, old[chain[i]].value);
    copies.emplace(chain[i], copy);
  }
  return copy;
}

GrammarMachine::State GrammarMachine::forget_all_but(State state) {
  const std::vector<PlaceData> old = std::move(places_);
  const auto kept = ways(states_[state]);
  const std::vector<Place> kept_ways(kept.begin(), kept.end());
  reset();
  reached_.clear();
  std::unordered_map<Place, Place> copies;
  for (const Place way : kept_ways) reached_.push_back(copy_place(old, way, copies));
  return state_of_reached();
}

}  // namespace moepack
