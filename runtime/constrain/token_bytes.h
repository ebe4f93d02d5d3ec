// A vocabulary by its bytes, for masks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moepack {

// Unchanging; shared by any number of threads. Holds copies of all texts.
class TokenBytes {
 public:
  struct Token {
    std::string_view bytes;  // empty: the id stands for nothing
    // Stands for itself and not for a piece of text: a special token, or an added one in angle
    // brackets such as <tool_call>.
    bool is_marker = false;
  };
  enum class Kind : std::uint8_t { kNothing, kText, kMarker, kEnd };

  TokenBytes(std::span<const Token> tokens, std::span<const std::int32_t> end_ids);

  std::size_t size() const { return kinds_.size(); }
  Kind kind(std::int32_t id) const {
    const auto i = static_cast<std::size_t>(id);
    return id >= 0 && i < kinds_.size() ? kinds_[i] : Kind::kNothing;
  }
  std::string_view bytes(std::int32_t id) const {
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(pool_).substr(begins_[i], begins_[i + 1] - begins_[i]);
  }
  std::span<const std::int32_t> end_ids() const { return end_ids_; }
  std::span<const std::int32_t> markers() const { return markers_; }
  // The id of a marker with this text, or -1.
  std::int32_t find_marker(std::string_view text) const;

  // Text tokens as a trie in preorder: a node's children follow it, and `skip` nodes later the next
  // node that is not below it comes.
  struct TrieNode {
    std::uint8_t byte = 0;
    std::uint8_t depth = 0;  // from 1; tokens longer than kMaxDepth are not in a trie
    std::uint32_t skip = 1;
    std::int32_t token = -1;  // the first token that ends here; next_same() leads to the others
  };
  static constexpr std::size_t kMaxDepth = 255;
  std::span<const TrieNode> all() const { return all_; }
  // Those that are not plain.
  std::span<const TrieNode> others() const { return others_; }
  std::int32_t next_same(std::int32_t id) const { return same_[static_cast<std::size_t>(id)]; }
  std::span<const std::int32_t> long_tokens() const { return long_; }

  // Plain tokens are whole characters of UTF-8, none of them below U+0020, a quotation mark, a
  // backslash or '<': any number of them is allowed within JSON strings and text before a mark.
  static bool is_plain_byte(std::uint8_t byte) {
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte != '<';
  }
  std::size_t longest_plain() const { return longest_plain_; }  // in characters
  // Sets the bits of plain tokens of at most so many characters; one bit for each id, lowest first.
  void add_plain(std::size_t characters, std::span<std::uint64_t> ids) const;

 private:
  std::vector<TrieNode> build_trie(std::vector<std::int32_t> ids);

  std::vector<Kind> kinds_;
  std::string pool_;
  std::vector<std::size_t> begins_;
  std::vector<std::int32_t> end_ids_, markers_, long_, same_;
  std::vector<TrieNode> all_, others_;
  std::vector<std::uint64_t> plain_;             // a bit for each id
  std::vector<std::uint16_t> plain_characters_;  // by id; 0: not plain
  std::size_t longest_plain_ = 0;
};

}  // namespace moepack
