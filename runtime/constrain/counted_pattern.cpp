#include "runtime/constrain/counted_pattern.h"

#include <algorithm>
#include <map>
#include <vector>

namespace moepack {
namespace {

using LengthRange = std::pair<std::uint32_t, std::uint32_t>;

std::uint32_t clamped_length(double length) {
  return length >= static_cast<double>(kPatternNoMaximum) ? kPatternNoMaximum
                                                          : static_cast<std::uint32_t>(length);
}

LengthRange lengths_of(const PatternWay& way);

LengthRange lengths_of(const PatternPart& part) {
  LengthRange once{1, 1};
  if (part.kind == PatternPart::Kind::kGroup) {
    once = {kPatternNoMaximum, 0};
    for (const PatternWay& way : part.ways) {
      const LengthRange of_way = lengths_of(way);
      once = {std::min(once.first, of_way.first), std::max(once.second, of_way.second)};
    }
  }
  return {clamped_length(static_cast<double>(once.first) * part.min),
          clamped_length(static_cast<double>(once.second) * part.max)};
}

LengthRange lengths_of(const PatternWay& way) {
  double shortest = 0, longest = 0;
  for (const PatternPart& part : way) {
    const LengthRange lengths = lengths_of(part);
    shortest += lengths.first;
    longest += lengths.second;
  }
  return {clamped_length(shortest), clamped_length(longest)};
}

// A part of a pattern between its first and its last places.
struct PatternFragment {
  bool is_nullable = true;
  std::vector<std::uint32_t> first, last;
};

void append_places(std::vector<std::uint32_t>& to, const std::vector<std::uint32_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// The places of a pattern and which may follow which (Glushkov 1961, "The abstract theory of
// automata"): a place is a set of characters, of which a text has one there.
class PatternPlaces {
 public:
  static constexpr std::size_t kMostPlaces = 600;
  static constexpr std::size_t kMostFollowers = 20000;

  // False where there are too many.
  bool add(std::span<const AnchoredWay> ways) {
    whole_.is_nullable = false;
    for (const AnchoredWay& way : ways) {
      PatternFragment all;
      if (!way.has_begin) all = joined(std::move(all), anything());
      all = joined(std::move(all), way_of(way.parts));
      if (!way.has_end) all = joined(std::move(all), anything());
      add_alternative(whole_, all);
    }
    for (std::vector<std::uint32_t>& followers : follow_) {
      std::sort(followers.begin(), followers.end());
      followers.erase(std::unique(followers.begin(), followers.end()), followers.end());
    }
    return !is_too_large_;
  }

  std::size_t size() const { return characters_.size(); }
  const CodePoints& characters(std::size_t place) const { return characters_[place]; }
  const std::vector<std::uint32_t>& followers(std::size_t place) const { return follow_[place]; }
  std::size_t count_followers() const { return followers_; }
  const PatternFragment& whole() const { return whole_; }

 private:
  static void add_alternative(PatternFragment& to, const PatternFragment& other) {
    to.is_nullable = to.is_nullable || other.is_nullable;
    append_places(to.first, other.first);
    append_places(to.last, other.last);
  }

  void connect(const std::vector<std::uint32_t>& from, const std::vector<std::uint32_t>& to) {
    followers_ += from.size() * to.size();
    is_too_large_ = is_too_large_ || followers_ > kMostFollowers || size() > kMostPlaces;
    if (is_too_large_) return;
    for (const std::uint32_t place : from) append_places(follow_[place], to);
  }

  PatternFragment joined(PatternFragment a, const PatternFragment& b) {
    connect(a.last, b.first);
    if (a.is_nullable) append_places(a.first, b.first);
    if (!b.is_nullable) a.last.clear();
    append_places(a.last, b.last);
    a.is_nullable = a.is_nullable && b.is_nullable;
    return a;
  }

  PatternFragment character(const CodePoints& points) {
    const auto place = static_cast<std::uint32_t>(characters_.size());
    characters_.push_back(points);
    follow_.emplace_back();
    return {.is_nullable = false, .first = {place}, .last = {place}};
  }

  PatternFragment anything() {
    PatternFragment fragment = character(complement({}));
    connect(fragment.last, fragment.first);
    fragment.is_nullable = true;
    return fragment;
  }

  PatternFragment way_of(const PatternWay& parts) {
    PatternFragment all;
    for (const PatternPart& part : parts) all = joined(std::move(all), repeated(part));
    return all;
  }

  PatternFragment once(const PatternPart& part) {
    if (part.kind == PatternPart::Kind::kCharacter) return character(part.characters);
    PatternFragment any;
    any.is_nullable = false;
    for (const PatternWay& parts : part.ways) add_alternative(any, way_of(parts));
    return any;
  }

  // As many copies as there are turns; the last one is repeated where there is no most.
  PatternFragment repeated(const PatternPart& part) {
    const bool is_endless = part.max == kPatternNoMaximum;
    PatternFragment all, behind;
    if (is_endless) {
      behind = once(part);
      connect(behind.last, behind.first);
      behind.is_nullable = behind.is_nullable || part.min == 0;
    }
    for (std::uint32_t i = part.min; !is_endless && i < part.max && !is_too_large_; ++i) {
      behind = joined(once(part), behind);
      behind.is_nullable = true;
    }
    const std::uint32_t before = is_endless ? std::max(part.min, 1U) - 1 : part.min;
    for (std::uint32_t i = 0; i < before && !is_too_large_; ++i) {
      all = joined(std::move(all), once(part));
      is_too_large_ = is_too_large_ || size() > kMostPlaces;
    }
    return joined(std::move(all), behind);
  }

  std::vector<CodePoints> characters_;
  std::vector<std::vector<std::uint32_t>> follow_;
  std::size_t followers_ = 0;
  PatternFragment whole_;
  bool is_too_large_ = false;
};

// The nodes of all places at one length after the other, the longest first.
class CountedPattern {
 public:
  CountedPattern(GrammarGraph& graph, const PatternPlaces& places, std::uint32_t min,
                 GrammarNodeId close)
      : graph_(graph), places_(places), min_(min), close_(close), is_last_(places.size()) {
    for (const std::uint32_t place : places.whole().last) is_last_[place] = true;
    for (std::size_t i = 0; i < places.size(); ++i) parts_.push_back(part_of(i));
  }

  GrammarNodeId build(std::uint32_t max) {
    const bool is_endless = max == kPatternNoMaximum;
    // What stands before a character at each place, the text with it being so long.
    std::vector<GrammarNodeId> entries(places_.size(), graph_.never());
    if (is_endless) entries = endless_entries();
    for (std::uint32_t length = is_endless ? min_ : max; length > 0; --length) {
      entries = entries_at(length, entries);
    }
    return choice_of(places_.whole().first, entries, places_.whole().is_nullable && min_ == 0);
  }

 private:
  GrammarNodeId part_of(std::size_t place) {
    const auto [at, is_new] = by_characters_.emplace(places_.characters(place), 0);
    if (is_new) at->second = pattern_character(graph_, at->first, graph_.part_end());
    return at->second;
  }

  GrammarNodeId choice_of(const std::vector<std::uint32_t>& places,
                          const std::vector<GrammarNodeId>& entries, bool may_close) {
    std::vector<GrammarNodeId> ways;
    if (may_close) ways.push_back(close_);
    for (const std::uint32_t place : places) {
      if (entries[place] != graph_.never()) ways.push_back(entries[place]);
    }
    return ways.empty() ? graph_.never() : graph_.choice(ways);
  }

  // `longer`: the entries with one character more.
  std::vector<GrammarNodeId> entries_at(std::uint32_t length,
                                        const std::vector<GrammarNodeId>& longer) {
    std::vector<GrammarNodeId> entries;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const bool may_close = is_last_[i] && length >= min_;
      const GrammarNodeId behind = choice_of(places_.followers(i), longer, may_close);
      entries.push_back(behind == graph_.never() ? behind : graph_.call(parts_[i], behind));
    }
    return entries;
  }

  // Where the text is long enough, at any length.
  std::vector<GrammarNodeId> endless_entries() {
    std::vector<GrammarNodeId> entries;
    for (std::size_t i = 0; i < places_.size(); ++i) entries.push_back(graph_.later());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const GrammarNodeId behind = choice_of(places_.followers(i), entries, is_last_[i]);
      graph_.set_later(entries[i], graph_.call(parts_[i], behind));
    }
    return entries;
  }

  GrammarGraph& graph_;
  const PatternPlaces& places_;
  const std::uint32_t min_;
  const GrammarNodeId close_;
  std::vector<bool> is_last_;
  std::map<CodePoints, GrammarNodeId> by_characters_;
  std::vector<GrammarNodeId> parts_;  // of the places: their characters
};

}  // namespace

std::pair<std::uint32_t, std::uint32_t> pattern_lengths(const AnchoredWay& way) {
  const LengthRange lengths = lengths_of(way.parts);
  return {lengths.first, way.has_begin && way.has_end ? lengths.second : kPatternNoMaximum};
}

std::optional<GrammarNodeId> counted_pattern(GrammarGraph& graph, std::span<const AnchoredWay> ways,
                                             std::uint32_t min, std::uint32_t max,
                                             GrammarNodeId next) {
  constexpr std::size_t kMostNodes = 20000;
  PatternPlaces places;
  if (!places.add(ways)) return std::nullopt;
  const std::size_t lengths = max == kPatternNoMaximum ? min : max;
  if ((places.size() + places.count_followers()) * (lengths + 1) > kMostNodes) return std::nullopt;
  CountedPattern counted(graph, places, min, graph.literal("\"", next));
  return graph.literal("\"", counted.build(max));
}

}  // namespace moepack
