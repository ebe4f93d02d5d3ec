#include "runtime/constrain/number_range.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

namespace moepack {
namespace {

constexpr std::size_t kRangeDigits = 20;  // on each side of the point

// Magnitudes between two bounds with a whole part of `length` digits.
class MagnitudeRange {
 public:
  MagnitudeRange(GrammarGraph& graph, NumberBound low, NumberBound high, std::size_t length,
                 bool is_integer, GrammarNodeId next)
      : graph_(graph),
        low_(std::move(low)),
        high_(std::move(high)),
        length_(length),
        is_integer_(is_integer),
        next_(next) {}

  GrammarNodeId build() {
    const bool is_low_tight = low_.whole.size() == length_;
    const bool is_high_tight = high_.whole.size() == length_;
    if (low_.whole.size() > length_ || high_.whole.size() < length_) return graph_.never();
    return at(0, is_low_tight, is_high_tight);
  }

 private:
  unsigned digit(const NumberBound& bound, std::size_t i) const {
    if (i < length_) return static_cast<unsigned>(bound.whole[i] - '0');
    const std::size_t k = i - length_;
    return k < bound.fraction.size() ? static_cast<unsigned>(bound.fraction[k] - '0') : 0;
  }
  bool is_zero_from(const NumberBound& bound, std::size_t i) const {
    const std::string& f = bound.fraction;
    return i - length_ >= f.size() || f.find_first_not_of('0', i - length_) == std::string::npos;
  }
  // Whether the number may end before digit i of the fraction, being as far as here equal to the
  // bounds that are tight.
  bool may_end(std::size_t i, bool low_tight, bool high_tight) const {
    const bool is_low_fine = !low_tight || (is_zero_from(low_, i) && !low_.is_excluded);
    const bool is_high_fine = !high_tight || !is_zero_from(high_, i) || !high_.is_excluded;
    return is_low_fine && is_high_fine;
  }

  // The digits from i on; the point is before digit length_.
  GrammarNodeId at(std::size_t i, bool low_tight, bool high_tight) {
    const auto key = std::make_tuple(i, low_tight, high_tight);
    const auto found = built_.find(key);
    if (found != built_.end()) return found->second;
    std::vector<GrammarNodeId> ways;
    if (i >= length_ && may_end(i, low_tight, high_tight)) ways.push_back(next_);
    const bool has_more = is_integer_ ? i < length_ : i < length_ + kRangeDigits;
    if (has_more) {
      const GrammarNodeId digits = digits_at(i, low_tight, high_tight);
      if (digits != graph_.never()) {
        ways.push_back(i == length_ ? graph_.literal(".", digits) : digits);
      }
    }
    return built_[key] = graph_.choice(ways);
  }

  GrammarNodeId digits_at(std::size_t i, bool low_tight, bool high_tight) {
    const unsigned first = low_tight ? digit(low_, i) : (i == 0 && length_ > 1 ? 1 : 0);
    const unsigned last = high_tight ? digit(high_, i) : 9;
    std::map<GrammarNodeId, ByteSet> ways;
    for (unsigned d = first; d <= last; ++d) {
      const GrammarNodeId then =
          at(i + 1, low_tight && d == first, high_tight && d == digit(high_, i));
      if (then != graph_.never()) ways[then].set('0' + d);
    }
    std::vector<GrammarEdge> edges;
    for (const auto& [to, bytes] : ways) edges.push_back({bytes, to});
    return graph_.bytes(edges);
  }

  GrammarGraph& graph_;
  const NumberBound low_, high_;
  const std::size_t length_;
  const bool is_integer_;
  const GrammarNodeId next_;
  std::map<std::tuple<std::size_t, bool, bool>, GrammarNodeId> built_;
};

NumberBound zero_bound() { return {}; }

NumberBound largest_bound() {
  NumberBound bound;
  bound.whole.assign(kRangeDigits, '9');
  bound.fraction.assign(kRangeDigits, '9');
  return bound;
}

// Moves the point of a number: "1.5" by 3 is "1500".
void move_point(NumberBound& bound, int places) {
  for (; places > 0; --places) {
    bound.whole += bound.fraction.empty() ? '0' : bound.fraction.front();
    if (!bound.fraction.empty()) bound.fraction.erase(0, 1);
  }
  for (; places < 0; ++places) {
    bound.fraction.insert(bound.fraction.begin(), bound.whole.back());
    bound.whole.pop_back();
    if (bound.whole.empty()) bound.whole = "0";
  }
  bound.whole.erase(0, std::min(bound.whole.find_first_not_of('0'), bound.whole.size() - 1));
}

void drop_zeros(NumberBound& bound) {
  while (!bound.fraction.empty() && bound.fraction.back() == '0') bound.fraction.pop_back();
  if (bound.whole == "0" && bound.fraction.empty()) bound.is_negative = false;
}

// The number as it is written in its shortest form, which has an exponent where it is very large
// or small.
std::optional<NumberBound> exact_bound(const OrderedJson& number, bool is_excluded) {
  if (!number.is_number() || !std::isfinite(number.get<double>())) return std::nullopt;
  std::string text = number.dump();
  NumberBound bound;
  bound.is_excluded = is_excluded;
  bound.is_negative = text.front() == '-';
  if (bound.is_negative) text.erase(0, 1);
  const std::size_t exponent = text.find('e');
  const int places = exponent == std::string::npos ? 0 : std::atoi(text.c_str() + exponent + 1);
  text.resize(std::min(exponent, text.size()));
  const std::size_t point = text.find('.');
  bound.whole = text.substr(0, point);
  if (point != std::string::npos) bound.fraction = text.substr(point + 1);
  move_point(bound, places);
  drop_zeros(bound);
  return bound;
}

// One more in the last place of a fraction. False where that is one more in the whole.
bool round_up(std::string& fraction) {
  for (std::size_t i = fraction.size(); i-- > 0;) {
    if (fraction[i] != '9') {
      ++fraction[i];
      return true;
    }
    fraction[i] = '0';
  }
  return false;
}

// To the nearest magnitude that has kRangeDigits on each side of the point and is not beyond the
// bound; with `is_upper` no smaller magnitude is. False where there is none.
bool fit_digits(NumberBound& bound, bool is_upper) {
  if (bound.whole.size() > kRangeDigits) {
    bound.whole.assign(kRangeDigits, '9');
    bound.fraction.assign(kRangeDigits, '9');
    bound.is_excluded = false;
    return is_upper;
  }
  if (bound.fraction.size() <= kRangeDigits) return true;
  bound.fraction.resize(kRangeDigits);
  bound.is_excluded = false;
  const bool is_fine = is_upper || round_up(bound.fraction);
  drop_zeros(bound);
  return is_fine;
}

NumberBound magnitude(NumberBound bound) {
  bound.is_negative = false;
  return bound;
}

GrammarNodeId magnitudes_between(GrammarGraph& graph, const NumberBound& low,
                                 const NumberBound& high, bool is_integer, GrammarNodeId next) {
  if (low.compare(high) > 0) return graph.never();
  std::vector<GrammarNodeId> ways;
  for (std::size_t length = low.whole.size(); length <= high.whole.size(); ++length) {
    const GrammarNodeId way = MagnitudeRange(graph, low, high, length, is_integer, next).build();
    if (way != graph.never()) ways.push_back(way);
  }
  return graph.choice(ways);
}

}  // namespace

std::optional<NumberBound> NumberBound::lowest(const OrderedJson& number, bool is_excluded) {
  std::optional<NumberBound> bound = exact_bound(number, is_excluded);
  // Of a negative number the magnitude is the upper one.
  if (bound.has_value() && !fit_digits(*bound, bound->is_negative)) return std::nullopt;
  return bound;
}

std::optional<NumberBound> NumberBound::highest(const OrderedJson& number, bool is_excluded) {
  std::optional<NumberBound> bound = exact_bound(number, is_excluded);
  if (bound.has_value() && !fit_digits(*bound, !bound->is_negative)) return std::nullopt;
  return bound;
}

int NumberBound::compare(const NumberBound& other) const {
  if (is_negative != other.is_negative) return is_negative ? -1 : 1;
  int order = 0;
  if (whole.size() != other.whole.size()) {
    order = whole.size() < other.whole.size() ? -1 : 1;
  } else {
    order = whole.compare(other.whole);
    if (order == 0) order = fraction.compare(other.fraction);  // no zeros at the end
  }
  return is_negative ? -order : order;
}

GrammarNodeId number_between(GrammarGraph& graph, const std::optional<NumberBound>& low,
                             const std::optional<NumberBound>& high, bool is_integer,
                             GrammarNodeId next) {
  std::vector<GrammarNodeId> ways;
  if (!high || !high->is_negative) {
    const NumberBound from = low && !low->is_negative ? *low : zero_bound();
    ways.push_back(
        magnitudes_between(graph, from, high.value_or(largest_bound()), is_integer, next));
  }
  if (!low || low->is_negative) {
    NumberBound from = zero_bound();
    from.is_excluded = true;  // no "-0"
    if (high && high->is_negative) from = magnitude(*high);
    const NumberBound to = low ? magnitude(*low) : largest_bound();
    const GrammarNodeId way = magnitudes_between(graph, from, to, is_integer, next);
    if (way != graph.never()) ways.push_back(graph.literal("-", way));
  }
  return graph.choice(ways);
}

}  // namespace moepack
