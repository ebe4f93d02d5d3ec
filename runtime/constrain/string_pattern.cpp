#include "runtime/constrain/string_pattern.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/utf8.h"
#include "runtime/constrain/counted_pattern.h"
#include "runtime/constrain/pattern_parts.h"
#include "runtime/constrain/text_bytes.h"

namespace moepack {
namespace {

constexpr std::size_t kMaxPatternLength = 4096;
constexpr std::uint32_t kMaxPatternRepeat = 100000;
constexpr int kMaxPatternDepth = 40;
// Places where a text can stand in a pattern, those of counted repetitions times their turns: a
// text may stand in all of them at once, and each is looked at for each byte.
constexpr double kMaxPatternPlaces = 4096;

CodePoints digit_points() { return {{'0', '9'}}; }
CodePoints word_points() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
CodePoints space_points() {
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

// Reads the text; any function that returns false or nullopt ends the reading.
class PatternReader {
 public:
  explicit PatternReader(std::u32string_view text) : text_(text) {}

  std::optional<std::vector<AnchoredWay>> read() {
    std::vector<AnchoredWay> ways(1);
    while (at_ < text_.size()) {
      if (take(U'|')) {
        ways.emplace_back();
        continue;
      }
      AnchoredWay& way = ways.back();
      if (way.has_end) return std::nullopt;
      if (peek() == U'^' && way.parts.empty() && !way.has_begin) {
        way.has_begin = take(U'^');
      } else if (peek() == U'$') {
        way.has_end = take(U'$');
      } else if (!read_part(way.parts, 0)) {
        return std::nullopt;
      }
    }
    return ways;
  }

 private:
  char32_t peek() const { return at_ < text_.size() ? text_[at_] : 0; }
  bool take(char32_t c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool read_part(PatternWay& way, int depth) {
    PatternPart part;
    const char32_t c = text_[at_++];
    if (c == U'(') {
      if (depth >= kMaxPatternDepth || !read_group(part, depth + 1)) return false;
    } else if (c == U'[') {
      if (!read_class(part.characters)) return false;
    } else if (c == U'.') {
      part.characters = complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
    } else if (c == U'\\') {
      if (!read_escape(part.characters, false)) return false;
    } else if (c == U'^' || c == U'$' || c == U'*' || c == U'+' || c == U'?' || c == U')' ||
               c == U'{') {
      return false;
    } else {
      part.characters = {{c, c}};
    }
    if (!read_quantifier(part)) return false;
    way.push_back(std::move(part));
    return true;
  }

  bool read_group(PatternPart& part, int depth) {
    part.kind = PatternPart::Kind::kGroup;
    part.ways.emplace_back();
    if (take(U'?') && !take(U':')) return false;
    while (at_ < text_.size()) {
      if (take(U')')) return true;
      if (take(U'|')) {
        part.ways.emplace_back();
      } else if (!read_part(part.ways.back(), depth)) {
        return false;
      }
    }
    return false;
  }

  bool read_number(std::uint32_t& number) {
    if (peek() < U'0' || peek() > U'9') return false;
    number = 0;
    while (peek() >= U'0' && peek() <= U'9') {
      number = number * 10 + static_cast<std::uint32_t>(text_[at_++] - U'0');
      if (number > kMaxPatternRepeat) return false;
    }
    return true;
  }

  bool read_quantifier(PatternPart& part) {
    if (take(U'*')) {
      part.min = 0, part.max = kPatternNoMaximum;
    } else if (take(U'+')) {
      part.max = kPatternNoMaximum;
    } else if (take(U'?')) {
      part.min = 0;
    } else if (take(U'{')) {
      if (!read_number(part.min)) return false;
      part.max = part.min;
      if (take(U',') && !read_number(part.max)) part.max = kPatternNoMaximum;
      if (!take(U'}') || part.max < part.min) return false;
    } else {
      return true;
    }
    take(U'?');  // as few as possible: the same texts match
    return peek() != U'*' && peek() != U'+' && peek() != U'?' && peek() != U'{';
  }

  bool read_hex(std::size_t digits, std::uint32_t& value) {
    value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char32_t c = peek();
      const std::u32string_view all = U"0123456789abcdefABCDEF";
      const std::size_t found = c == 0 ? std::u32string_view::npos : all.find(c);
      if (found == std::u32string_view::npos) return false;
      value = value * 16 + static_cast<std::uint32_t>(found < 16 ? found : found - 6);
      ++at_;
    }
    return true;
  }

  bool read_escape(CodePoints& points, bool is_in_class) {
    if (at_ >= text_.size()) return false;
    const char32_t c = text_[at_++];
    std::uint32_t value = 0;
    switch (c) {
      case U'd':
        points = digit_points();
        return true;
      case U'D':
        points = complement(digit_points());
        return true;
      case U'w':
        points = word_points();
        return true;
      case U'W':
        points = complement(word_points());
        return true;
      case U's':
        points = space_points();
        return true;
      case U'S':
        points = complement(space_points());
        return true;
      case U'n':
        value = '\n';
        break;
      case U'r':
        value = '\r';
        break;
      case U't':
        value = '\t';
        break;
      case U'f':
        value = '\f';
        break;
      case U'v':
        value = '\v';
        break;
      case U'b':
        if (!is_in_class) return false;
        value = '\b';
        break;
      case U'x':
        if (!read_hex(2, value)) return false;
        break;
      case U'u':
        if (!read_hex(4, value) || (value >= 0xD800 && value <= 0xDFFF)) return false;
        break;
      default:
        // Letters and digits mean something that is not read here.
        if (c >= 0x80 || contains(word_points(), c)) return false;
        value = c;
    }
    points = {{value, value}};
    return true;
  }

  bool read_class_item(CodePoints& points) {
    if (take(U'\\')) return read_escape(points, true);
    const char32_t c = text_[at_++];
    points = {{c, c}};
    return true;
  }

  bool read_class(CodePoints& points) {
    const bool is_negated = take(U'^');
    CodePoints all;
    while (at_ < text_.size() && peek() != U']') {
      CodePoints item;
      if (!read_class_item(item)) return false;
      const bool is_range = peek() == U'-' && at_ + 1 < text_.size() && text_[at_ + 1] != U']';
      if (is_range) {
        ++at_;
        CodePoints last;
        if (!read_class_item(last)) return false;
        const bool are_single = item.size() == 1 && item[0].first == item[0].second &&
                                last.size() == 1 && last[0].first == last[0].second;
        if (!are_single || last[0].first < item[0].first) return false;
        item[0].second = last[0].first;
      }
      all.insert(all.end(), item.begin(), item.end());
    }
    if (!take(U']')) return false;
    points = is_negated ? complement(all) : normalised(std::move(all));
    return true;
  }

  std::u32string_view text_;
  std::size_t at_ = 0;
};

double pattern_places(const PatternWay& way) {
  double places = 0;
  for (const PatternPart& part : way) {
    double once = 1;
    for (const PatternWay& parts : part.ways) once += pattern_places(parts);
    const std::uint32_t turns = part.max == kPatternNoMaximum ? part.min : part.max;
    places += once * std::max(turns, 1U);
  }
  return places;
}

// One repeated character, however often, is one place at a time.
bool is_one_character(const PatternWay& way) {
  return way.size() == 1 && way.front().kind == PatternPart::Kind::kCharacter;
}

// Adds the parts of a pattern to a graph, as they stand in a string of JSON.
class PatternGraph {
 public:
  explicit PatternGraph(GrammarGraph& graph) : graph_(graph) {}

  GrammarNodeId way(const PatternWay& parts, GrammarNodeId next) {
    for (std::size_t i = parts.size(); i-- > 0;) next = part(parts[i], next);
    return next;
  }

 private:
  GrammarNodeId part(const PatternPart& part, GrammarNodeId next) {
    if (part.min == 1 && part.max == 1) return once(part, next);
    if (part.max == 1) return graph_.choice({once(part, next), next});
    return graph_.repeat(once(part, graph_.part_end()), part.min, part.max, next);
  }

  GrammarNodeId once(const PatternPart& part, GrammarNodeId next) {
    if (part.kind == PatternPart::Kind::kCharacter)
      return pattern_character(graph_, part.characters, next);
    std::vector<GrammarNodeId> ways;
    for (const PatternWay& parts : part.ways) ways.push_back(way(parts, next));
    return graph_.choice(ways);
  }

  GrammarGraph& graph_;
};

}  // namespace

GrammarNodeId pattern_character(GrammarGraph& graph, const CodePoints& points, GrammarNodeId next) {
  static constexpr std::string_view kShort = "\bb\ff\nn\rr\tt\"\"\\\\";
  CodePoints raw;
  for (const auto& [first, last] : points) {
    for (const auto& [from, to] : {std::pair{0x20U, 0x21U}, {0x23U, 0x5BU}, {0x5DU, 0x10FFFFU}}) {
      if (first <= to && last >= from) raw.emplace_back(std::max(first, from), std::min(last, to));
    }
  }
  std::vector<std::pair<std::string, GrammarNodeId>> escapes;
  for (std::uint32_t point = 0; point < 0x60; ++point) {
    if (!contains(points, point)) continue;
    const std::size_t found = kShort.find(static_cast<char>(point));
    if (point < 0x20 && (found == std::string_view::npos || found % 2 != 0)) {
      std::array<char, 8> text{};
      std::snprintf(text.data(), text.size(), "\\u%04x", point);
      escapes.emplace_back(text.data(), next);
    } else if (point < 0x20 || point == '"' || point == '\\') {
      escapes.emplace_back(std::string("\\") + kShort[found + 1], next);
    }
  }
  std::vector<GrammarNodeId> ways;
  if (!raw.empty()) ways.push_back(utf8_character(graph, raw, next));
  if (!escapes.empty()) ways.push_back(graph.literals(std::move(escapes)));
  return graph.choice(ways);
}

struct StringPattern::Impl {
  std::vector<AnchoredWay> ways;
};

StringPattern::StringPattern(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StringPattern::StringPattern(StringPattern&&) noexcept = default;
StringPattern& StringPattern::operator=(StringPattern&&) noexcept = default;
StringPattern::~StringPattern() = default;

std::optional<StringPattern> StringPattern::parse(std::string_view pattern) {
  if (pattern.size() > kMaxPatternLength) return std::nullopt;
  if (find_invalid_utf8(pattern) != std::string_view::npos) return std::nullopt;
  std::u32string text;
  for (const char* at = pattern.data(); at < pattern.data() + pattern.size();) {
    text += next_character(&at);
  }
  auto ways = PatternReader(text).read();
  if (!ways) return std::nullopt;
  double places = 0;
  for (const AnchoredWay& way : *ways) {
    if (!way.has_begin || !is_one_character(way.parts)) places += pattern_places(way.parts);
  }
  if (places > kMaxPatternPlaces) return std::nullopt;
  auto impl = std::make_unique<Impl>();
  impl->ways = std::move(*ways);
  return StringPattern(std::move(impl));
}

std::optional<GrammarNodeId> StringPattern::json_string(GrammarGraph& graph, JsonRules& rules,
                                                        std::uint32_t min, std::uint32_t max,
                                                        GrammarNodeId next) const {
  std::vector<AnchoredWay> ways;
  for (const AnchoredWay& way : impl_->ways) {
    const auto [shortest, longest] = pattern_lengths(way);
    if (shortest > max || longest < min) continue;
    ways.push_back(way);
    if (shortest >= min && longest <= max) continue;
    if (way.has_begin && way.has_end && is_one_character(way.parts)) {
      PatternPart& part = ways.back().parts.front();
      part.min = std::max(part.min, min);
      part.max = std::min(part.max, max);
      continue;
    }
    return counted_pattern(graph, impl_->ways, min, max, next);
  }
  const GrammarNodeId close = graph.literal("\"", next);
  const auto anything = [&](GrammarNodeId then) {
    return graph.repeat(rules.character(), 0, kPatternNoMaximum, then);
  };
  std::vector<GrammarNodeId> starts;
  for (const AnchoredWay& way : ways) {
    GrammarNodeId node = way.has_end ? close : anything(close);
    node = PatternGraph(graph).way(way.parts, node);
    starts.push_back(way.has_begin ? node : anything(node));
  }
  if (starts.empty()) return graph.never();
  return graph.literal("\"", graph.choice(starts));
}

}  // namespace moepack
