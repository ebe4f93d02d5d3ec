#include "runtime/constrain/json_rules.h"

#include <map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/constrain/text_bytes.h"

namespace moepack {
namespace {

constexpr std::uint32_t kJsonNoMaximum = GrammarNode::kNoMaximum;
constexpr std::uint32_t kMaxDigits = 20;

ByteSet json_hex() { return bytes_of("0123456789abcdefABCDEF"); }

// Keys as a trie of the bytes that stand between their quotes.
class KeyTrie {
 public:
  struct Node {
    std::map<unsigned char, std::uint32_t> children;
    bool is_key = false;
  };
  explicit KeyTrie(std::span<const std::string> keys) : nodes_(1) {
    for (const std::string& key : keys) {
      const std::string text = JsonRules::quoted(key);
      add(std::string_view(text).substr(1, text.size() - 2));
    }
  }
  const Node& operator[](std::uint32_t node) const { return nodes_[node]; }

 private:
  void add(std::string_view text) {
    std::uint32_t at = 0;
    for (const char byte : text) {
      const auto next = static_cast<std::uint32_t>(nodes_.size());
      const auto [child, is_new] =
          nodes_[at].children.emplace(static_cast<unsigned char>(byte), next);
      at = child->second;
      if (is_new) nodes_.emplace_back();
    }
    nodes_[at].is_key = true;
  }

  std::vector<Node> nodes_;
};

constexpr TextBytes::State kKeyEscaped = 0xF0;  // behind a backslash
constexpr TextBytes::State kKeyForbidden = 0xFF;

// What a byte of a key leads to.
TextBytes::State key_state_after(TextBytes::State state, unsigned byte) {
  if (byte < 0x20) return kKeyForbidden;
  if (state == kKeyEscaped) {
    return bytes_of("\"\\bfnrt").test(byte) ? TextBytes::kBetween : kKeyForbidden;
  }
  if (state == TextBytes::kBetween && byte == '\\') return kKeyEscaped;
  if (state == TextBytes::kBetween && byte == '"') return kKeyForbidden;
  const TextBytes::State then = TextBytes::next(state, static_cast<std::uint8_t>(byte));
  return then == TextBytes::kWrong ? kKeyForbidden : then;
}

}  // namespace

std::string JsonRules::quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

GrammarNodeId JsonRules::space(GrammarNodeId next) {
  if (space_ == 0) {
    const GrammarNodeId end = graph_.part_end();
    const ByteSet blank = bytes_of(" \t");
    GrammarNodeId indent = end;
    for (std::uint32_t i = 0; i < kMaxIndent; ++i) {
      indent = graph_.choice({end, graph_.bytes(blank, indent)});
    }
    const auto line_end = [&](GrammarNodeId then) {
      const GrammarNodeId feed = graph_.bytes(bytes_of("\n"), then);
      return graph_.choice({feed, graph_.bytes(bytes_of("\r"), feed)});
    };
    const GrammarNodeId lines = line_end(graph_.choice({indent, line_end(indent)}));
    space_ = graph_.choice({end, graph_.bytes(bytes_of(" "), end), lines});
  }
  return graph_.call(space_, next);
}

GrammarNodeId JsonRules::hex_digits(std::uint32_t count, GrammarNodeId next) {
  for (std::uint32_t i = 0; i < count; ++i) next = graph_.bytes(json_hex(), next);
  return next;
}

GrammarNodeId JsonRules::character() {
  if (character_ != 0) return character_;
  const GrammarNodeId end = graph_.part_end();
  const ByteSet d = bytes_of("dD");
  // A code point beyond U+FFFF is two escapes, one below U+E000 is none alone.
  GrammarNodeId low = graph_.bytes(bytes_of("cdefCDEF"), hex_digits(2, end));
  low = graph_.literal("\\u", graph_.bytes(d, low));
  const GrammarEdge of_d[] = {{bytes_of("01234567"), hex_digits(2, end)},
                              {bytes_of("89abAB"), hex_digits(2, low)}};
  const GrammarEdge code[] = {{json_hex() & ~d, hex_digits(3, end)}, {d, graph_.bytes(of_d)}};
  const GrammarEdge escape[] = {{bytes_of("\"\\/bfnrt"), end}, {bytes_of("u"), graph_.bytes(code)}};
  const GrammarNodeId one = graph_.bytes(byte_range(0x80, 0xBF), end);
  const GrammarNodeId two = graph_.bytes(byte_range(0x80, 0xBF), one);
  const GrammarNodeId three = graph_.bytes(byte_range(0x80, 0xBF), two);
  const GrammarEdge first[] = {{byte_range(0x20, 0x7F) & ~bytes_of("\"\\"), end},
                               {bytes_of("\\"), graph_.bytes(escape)},
                               {byte_range(0xC2, 0xDF), one},
                               {byte_range(0xE0, 0xE0), graph_.bytes(byte_range(0xA0, 0xBF), one)},
                               {byte_range(0xE1, 0xEC) | byte_range(0xEE, 0xEF), two},
                               {byte_range(0xED, 0xED), graph_.bytes(byte_range(0x80, 0x9F), one)},
                               {byte_range(0xF0, 0xF0), graph_.bytes(byte_range(0x90, 0xBF), two)},
                               {byte_range(0xF1, 0xF3), three},
                               {byte_range(0xF4, 0xF4), graph_.bytes(byte_range(0x80, 0x8F), two)}};
  character_ = graph_.bytes(first, ByteKind::kText, PlainUse::kRepeated);
  return character_;
}

GrammarNodeId JsonRules::string(std::uint32_t min, std::uint32_t max, GrammarNodeId next) {
  const GrammarNodeId close = graph_.literal("\"", next);
  return graph_.literal("\"", graph_.repeat(character(), min, max, close));
}

GrammarNodeId JsonRules::digits(std::uint32_t max, GrammarNodeId next) {
  GrammarNodeId node = next;
  for (std::uint32_t i = 0; i < max; ++i) {
    node = graph_.choice({next, graph_.bytes(byte_range('0', '9'), node)});
  }
  return node;
}

GrammarNodeId JsonRules::integer_part() {
  if (integer_ != 0) return integer_;
  const GrammarNodeId end = graph_.part_end();
  const GrammarEdge first[] = {{bytes_of("0"), end},
                               {byte_range('1', '9'), digits(kMaxDigits - 1, end)}};
  const GrammarNodeId positive = graph_.bytes(first);
  integer_ = graph_.choice({positive, graph_.bytes(bytes_of("-"), positive)});
  return integer_;
}

GrammarNodeId JsonRules::number_part() {
  if (number_ != 0) return number_;
  const GrammarNodeId end = graph_.part_end();
  const ByteSet digit = byte_range('0', '9');
  const GrammarNodeId one = graph_.bytes(digit, end);
  const GrammarNodeId two = graph_.bytes(digit, one);
  const GrammarNodeId to_279 =
      graph_.choice({one, two, graph_.bytes(bytes_of("1"), two),
                     graph_.bytes(bytes_of("2"), graph_.bytes(byte_range('0', '7'), one))});
  const GrammarNodeId exponent =
      graph_.bytes(bytes_of("eE"), graph_.choice({to_279, graph_.bytes(bytes_of("+-"), to_279)}));
  const GrammarNodeId behind = graph_.choice({end, exponent});
  const GrammarNodeId fraction =
      graph_.bytes(bytes_of("."), graph_.bytes(digit, digits(kMaxDigits - 1, behind)));
  number_ = graph_.call(integer_part(), graph_.choice({behind, fraction}));
  return number_;
}

GrammarNodeId JsonRules::number(GrammarNodeId next) { return graph_.call(number_part(), next); }
GrammarNodeId JsonRules::integer(GrammarNodeId next) { return graph_.call(integer_part(), next); }

GrammarNodeId JsonRules::colon_and(GrammarNodeId value, GrammarNodeId next) {
  return graph_.literal(":", space(graph_.call(value, next)));
}

GrammarNodeId JsonRules::object(GrammarNodeId next) {
  const GrammarNodeId end = graph_.part_end();
  const GrammarNodeId pair = string(0, kJsonNoMaximum, colon_and(value_part(), end));
  const GrammarNodeId close = space(graph_.literal("}", next));
  const GrammarNodeId more = graph_.literal(",", space(graph_.call(pair, end)));
  const GrammarNodeId pairs = graph_.call(pair, graph_.repeat(more, 0, kJsonNoMaximum, close));
  return graph_.literal("{", graph_.choice({close, space(pairs)}));
}

GrammarNodeId JsonRules::array(GrammarNodeId next) {
  const GrammarNodeId end = graph_.part_end();
  const GrammarNodeId close = space(graph_.literal("]", next));
  const GrammarNodeId more = graph_.literal(",", space(graph_.call(value_part(), end)));
  const GrammarNodeId items =
      graph_.call(value_part(), graph_.repeat(more, 0, kJsonNoMaximum, close));
  return graph_.literal("[", graph_.choice({close, space(items)}));
}

GrammarNodeId JsonRules::value_part() {
  if (value_ != 0) return value_;
  value_ = graph_.later();
  const GrammarNodeId end = graph_.part_end();
  const GrammarNodeId any =
      graph_.choice({string(0, kJsonNoMaximum, end), number(end), object(end), array(end),
                     graph_.literals({{"true", end}, {"false", end}, {"null", end}})});
  graph_.set_later(value_, any);
  return value_;
}

GrammarNodeId JsonRules::value(GrammarNodeId next) { return graph_.call(value_part(), next); }

// A place in a key is a node of the trie, or kGone where no key begins like it, with what the bytes
// so far make of the next one.
GrammarNodeId JsonRules::other_pair(std::span<const std::string> others, GrammarNodeId value,
                                    GrammarNodeId next) {
  constexpr std::uint32_t kGone = 0xFFFFFFFF;
  const KeyTrie trie(others);
  using Key = std::pair<std::uint32_t, TextBytes::State>;
  std::map<Key, GrammarNodeId> entries;
  std::vector<Key> todo;
  const auto entry_of = [&](const Key& key) {
    const auto [at, is_new] = entries.emplace(key, 0);
    if (is_new) {
      at->second = graph_.later();
      todo.push_back(key);
    }
    return at->second;
  };
  // By state: the bytes that lead to each state.
  using Moves = std::map<TextBytes::State, ByteSet>;
  std::map<TextBytes::State, Moves> moves;
  const auto moves_of = [&](TextBytes::State state) -> const Moves& {
    const auto [at, is_new] = moves.try_emplace(state);
    for (unsigned byte = 0; is_new && byte < 256; ++byte) {
      const TextBytes::State then = key_state_after(state, byte);
      if (then != kKeyForbidden) at->second[then].set(byte);
    }
    return at->second;
  };
  const GrammarNodeId after = graph_.literal("\"", colon_and(value, next));
  const GrammarNodeId start = graph_.literal("\"", entry_of({0, TextBytes::kBetween}));
  while (!todo.empty() && !graph_.is_too_large()) {
    const auto [node, state] = todo.back();
    const GrammarNodeId entry = entries.at(todo.back());
    todo.pop_back();
    std::map<GrammarNodeId, ByteSet> ways;
    for (const auto& [then, bytes] : moves_of(state)) {
      ByteSet leaving = bytes;
      if (node != kGone) {
        for (const auto& [byte, child] : trie[node].children) {
          if (!leaving.test(byte)) continue;
          leaving.reset(byte);
          ways[entry_of({child, then})].set(byte);
        }
      }
      if (leaving.any()) ways[entry_of({kGone, then})] |= leaving;
    }
    std::vector<GrammarEdge> edges;
    for (const auto& [to, bytes] : ways) edges.push_back({bytes, to});
    const bool is_between = state == TextBytes::kBetween;
    const bool is_free = node == kGone && is_between;
    const GrammarNodeId inside =
        graph_.bytes(edges, ByteKind::kText, is_free ? PlainUse::kAlways : PlainUse::kNone);
    const bool may_end = is_between && (node == kGone || !trie[node].is_key);
    graph_.set_later(entry, may_end ? graph_.choice({inside, after}) : inside);
  }
  return start;
}

}  // namespace moepack
