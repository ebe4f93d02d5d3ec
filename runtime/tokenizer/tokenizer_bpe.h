// Byte-pair encoding of one pre-token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"
#include "runtime/tokenizer/tokenizer_vocab.h"

namespace moepack {

// Joins the neighbouring pair of lowest rank, leftmost first, until no pair has a rank. Source:
// Sennrich et al. 2016, applied to bytes, or to characters of which those without a token become
// the tokens of their bytes. Immutable once built; may be used by any number of threads.
class BpeModel {
 public:
  // Merges of unknown tokens are refused, and those that make or use a token <0xHH> of a byte. A
  // vocabulary of characters must have all 256 of these.
  static Result<BpeModel> build(const TokenizerSpec& spec, const TokenIndex& index,
                                const Vocabulary& vocab, const Where& where);

  // Appends the ids of `word` (at most 2^31 - 1 bytes) to `ids`. It takes time in proportion to
  // n log n, and about 20 bytes of memory for each byte. kUnsupported if the vocabulary has no
  // token for one of the word's bytes.
  Status encode(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = 0;
    std::uint32_t id = 0;
  };
  static constexpr std::uint64_t kNoPair = ~0ULL;
  static constexpr std::size_t kShortWord = 32;
  static constexpr std::size_t kLongWord = 65536;  // longer ones have a queue of their own

  static std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
    return (static_cast<std::uint64_t>(left) << 32) | right;
  }
  Status fill_symbols(const TokenizerSpec& spec, const Vocabulary& vocab, const Where& where);
  Status fill_merges(const TokenizerSpec& spec, const TokenIndex& index, const Where& where);
  // The slot that holds `pair`, or the empty one where it belongs.
  std::size_t slot_of(std::uint64_t pair) const;
  // Null if the two do not merge.
  const Merge* find(std::uint32_t left, std::uint32_t right) const;
  // Calls add(id, first byte, bytes) for each symbol that the word begins as.
  template <typename Add>
  void first_symbols(std::string_view word, Add add) const;
  void encode_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  template <typename Queue>
  void encode_long(std::string_view word, Queue& queue, std::vector<std::int32_t>& ids) const;

  std::vector<std::uint32_t> lengths_;        // by id, the bytes of a text that the token takes
  std::array<std::int32_t, 256> byte_ids_{};  // -1: no such token
  bool over_characters_ = false;
  std::unordered_map<char32_t, std::int32_t> characters_;  // tokens of one, if over_characters_
  std::vector<Merge> merges_;  // open addressing, a power of two, at most half full
  bool ignore_merges_ = false;
  std::unordered_map<std::string, std::int32_t> whole_words_;  // filled if ignore_merges
};

}  // namespace moepack
