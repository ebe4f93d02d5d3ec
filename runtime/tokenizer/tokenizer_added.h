// Finds added tokens in text, as HuggingFace's AddedVocabulary does.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {

// Bytes [begin, end) of a text that are no part of any added token: a token neither lies in them
// nor begins or ends there.
struct LiteralRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Immutable once filled; find() may be called from any number of threads.
class AddedTokenMatcher {
 public:
  // `pattern` is the text to look for (the content, or its normalized form), not empty. Refuses
  // texts beyond kMaxBytes and two tokens with one text.
  Status add(std::string_view pattern, const AddedTokenSpec& token, const Where& where);
  bool empty() const { return tokens_.empty(); }

  static constexpr std::size_t kMaxBytes = 4096;
  static constexpr std::int32_t kText = -1;
  // Receives the stretches of a text in order: an added token's id, or kText and plain text.
  using Sink = std::function<Status(std::int32_t id, std::string_view text)>;
  // Hands the stretches of `text`, which is valid UTF-8 and not empty, to `sink`. The leftmost
  // match is taken first, and of several that begin there the longest. What has a byte in one of
  // `literal` (ascending, apart from each other) is text.
  Status find(std::string_view text, const Sink& sink,
              std::span<const LiteralRange> literal = {}) const;

 private:
  struct Token {
    std::int32_t id;
    bool lstrip;
    bool rstrip;
    bool single_word;
  };
  struct Match {
    std::size_t begin;
    std::size_t end;
    const Token* token;  // null: no match
  };
  struct Node {
    std::int32_t token = -1;  // index into tokens_ of the one that ends here
  };
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return (static_cast<std::uint64_t>(node) << 8) | static_cast<unsigned char>(byte);
  }
  // Ranges of `literal` that end before the place that is reached are taken from it.
  Match next_match(std::string_view text, std::size_t from,
                   std::span<const LiteralRange>& literal) const;

  std::vector<Token> tokens_;
  std::vector<Node> nodes_ = {Node{}};  // of the trie; 0 is the root
  std::unordered_map<std::uint64_t, std::uint32_t> edges_;
  std::array<bool, 256> starts_{};  // first bytes of all tokens
};

}  // namespace moepack
