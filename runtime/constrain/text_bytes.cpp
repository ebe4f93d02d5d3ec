#include "runtime/constrain/text_bytes.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

namespace moepack {
namespace {

constexpr std::uint32_t kLastCodePoint = 0x10FFFF;

struct Utf8Range {
  std::vector<std::pair<unsigned, unsigned>> bytes;  // of each byte, both included
};

std::vector<unsigned> utf8_bytes(std::uint32_t point) {
  if (point < 0x80) return {point};
  if (point < 0x800) return {0xC0 | point >> 6U, 0x80 | (point & 0x3FU)};
  if (point < 0x10000) {
    return {0xE0 | point >> 12U, 0x80 | (point >> 6U & 0x3FU), 0x80 | (point & 0x3FU)};
  }
  return {0xF0 | point >> 18U, 0x80 | (point >> 12U & 0x3FU), 0x80 | (point >> 6U & 0x3FU),
          0x80 | (point & 0x3FU)};
}

// Cuts [first, last] where the number of bytes changes, and where a byte changes while those behind
// it do not take all values.
void add_utf8_ranges(std::uint32_t first, std::uint32_t last, std::vector<Utf8Range>& ranges) {
  constexpr std::array<std::uint32_t, 3> kLastOfLength = {0x7F, 0x7FF, 0xFFFF};
  for (const std::uint32_t end : kLastOfLength) {
    if (first <= end && last > end) {
      add_utf8_ranges(first, end, ranges);
      add_utf8_ranges(end + 1, last, ranges);
      return;
    }
  }
  const std::size_t length = utf8_bytes(first).size();
  for (std::size_t i = 1; i < length; ++i) {
    const std::uint32_t low = (1U << (6 * i)) - 1;
    if ((first & ~low) == (last & ~low)) continue;
    if ((first & low) != 0) {
      add_utf8_ranges(first, first | low, ranges);
      add_utf8_ranges((first | low) + 1, last, ranges);
      return;
    }
    if ((last & low) != low) {
      add_utf8_ranges(first, (last & ~low) - 1, ranges);
      add_utf8_ranges(last & ~low, last, ranges);
      return;
    }
  }
  const std::vector<unsigned> from = utf8_bytes(first);
  const std::vector<unsigned> to = utf8_bytes(last);
  Utf8Range range;
  for (std::size_t i = 0; i < length; ++i) range.bytes.emplace_back(from[i], to[i]);
  ranges.push_back(std::move(range));
}

// The length of the longest beginning of `mark` that `text` + `byte` ends with.
std::size_t matched_after(std::string_view mark, std::size_t matched, char byte) {
  std::string text(mark.substr(0, matched));
  text += byte;
  for (std::size_t length = std::min(text.size(), mark.size()); length > 0; --length) {
    if (std::string_view(text).substr(text.size() - length) == mark.substr(0, length)) {
      return length;
    }
  }
  return 0;
}

}  // namespace

TextBytes::State TextBytes::next(State state, std::uint8_t byte) {
  enum : State { kOneMore = 1, kTwoMore, kThreeMore, kAfterE0, kAfterEd, kAfterF0, kAfterF4 };
  const auto within = [byte](unsigned first, unsigned last, State then) {
    return byte >= first && byte <= last ? then : kWrong;
  };
  switch (state) {
    case kBetween:
      if (byte < 0x80) return byte != 0 ? kBetween : kWrong;
      if (byte == 0xE0) return kAfterE0;
      if (byte == 0xED) return kAfterEd;
      if (byte == 0xF0) return kAfterF0;
      if (byte == 0xF4) return kAfterF4;
      if (byte >= 0xC2 && byte <= 0xDF) return kOneMore;
      if (byte >= 0xE1 && byte <= 0xEF) return kTwoMore;
      return within(0xF1, 0xF3, kThreeMore);
    case kOneMore:
      return within(0x80, 0xBF, kBetween);
    case kTwoMore:
      return within(0x80, 0xBF, kOneMore);
    case kThreeMore:
      return within(0x80, 0xBF, kTwoMore);
    case kAfterE0:
      return within(0xA0, 0xBF, kOneMore);
    case kAfterEd:
      return within(0x80, 0x9F, kOneMore);
    case kAfterF0:
      return within(0x90, 0xBF, kTwoMore);
    case kAfterF4:
      return within(0x80, 0x8F, kTwoMore);
    default:
      return kWrong;
  }
}

GrammarNodeId text_until(GrammarGraph& graph, std::string_view end_mark, GrammarNodeId mark) {
  using Key = std::pair<std::size_t, TextBytes::State>;  // matched bytes of the mark
  std::map<Key, GrammarNodeId> entries;
  std::vector<Key> todo;
  const auto entry_of = [&](const Key& key) {
    const auto [at, is_new] = entries.emplace(key, 0);
    if (is_new) {
      at->second = graph.later();
      todo.push_back(key);
    }
    return at->second;
  };
  const GrammarNodeId start = entry_of({0, TextBytes::kBetween});
  while (!todo.empty() && !graph.is_too_large()) {
    const Key key = todo.back();
    todo.pop_back();
    std::map<GrammarNodeId, ByteSet> ways;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const TextBytes::State state = TextBytes::next(key.second, static_cast<std::uint8_t>(byte));
      if (state == TextBytes::kWrong) continue;
      const std::size_t matched = matched_after(end_mark, key.first, static_cast<char>(byte));
      if (matched < end_mark.size()) ways[entry_of({matched, state})].set(byte);
    }
    std::vector<GrammarEdge> edges;
    for (const auto& [to, bytes] : ways) edges.push_back({bytes, to});
    const bool is_start = key == Key{0, TextBytes::kBetween};
    const GrammarNodeId node =
        graph.bytes(edges, ByteKind::kText, is_start ? PlainUse::kAlways : PlainUse::kNone);
    // The mark begins with '<' and has no other: it can begin wherever a character can.
    const bool can_begin = key.second == TextBytes::kBetween;
    graph.set_later(entries.at(key), can_begin ? graph.choice({node, mark}) : node);
  }
  return start;
}

CodePoints normalised(CodePoints points) {
  std::sort(points.begin(), points.end());
  CodePoints joined;
  for (const auto& [first, last] : points) {
    if (!joined.empty() && first <= joined.back().second + 1) {
      joined.back().second = std::max(joined.back().second, last);
    } else {
      joined.emplace_back(first, last);
    }
  }
  return joined;
}

CodePoints complement(const CodePoints& points) {
  CodePoints others;
  std::uint32_t at = 0;
  for (const auto& [first, last] : normalised(points)) {
    if (first > at) others.emplace_back(at, first - 1);
    at = last + 1;
  }
  if (at <= kLastCodePoint) others.emplace_back(at, kLastCodePoint);
  return others;
}

bool contains(const CodePoints& points, std::uint32_t point) {
  return std::any_of(points.begin(), points.end(), [point](const auto& range) {
    return range.first <= point && point <= range.second;
  });
}

GrammarNodeId utf8_character(GrammarGraph& graph, const CodePoints& points, GrammarNodeId next) {
  std::vector<Utf8Range> ranges;
  for (const auto& [first, last] : points) {
    if (first < 0xD800) add_utf8_ranges(first, std::min(last, 0xD7FFU), ranges);
    if (last > 0xDFFF) add_utf8_ranges(std::max(first, 0xE000U), last, ranges);
  }
  std::map<GrammarNodeId, ByteSet> ways;
  for (const Utf8Range& range : ranges) {
    GrammarNodeId node = next;
    for (std::size_t i = range.bytes.size(); i-- > 1;) {
      node = graph.bytes(byte_range(range.bytes[i].first, range.bytes[i].second), node);
    }
    ways[node] |= byte_range(range.bytes[0].first, range.bytes[0].second);
  }
  std::vector<GrammarEdge> edges;
  for (const auto& [to, bytes] : ways) edges.push_back({bytes, to});
  return graph.bytes(edges);
}

}  // namespace moepack
