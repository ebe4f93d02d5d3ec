// Byte-pair encoding of one pre-token.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"
#include "runtime/tokenizer/tokenizer_vocab.h"

namespace moepack {

// Joins the neighbouring pair of lowest rank, leftmost first, until no pair has a rank. Source:
// Sennrich et al. 2016, applied to bytes. Immutable once built; may be used by any number of
// threads.
class BpeModel {
 public:
  // `vocab` outlives the model and stays where it is. Merges of unknown tokens are refused.
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

  explicit BpeModel(const Vocabulary& vocab) : vocab_(&vocab) {}
  static std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
    return (static_cast<std::uint64_t>(left) << 32) | right;
  }
  Status fill_merges(const TokenizerSpec& spec, const TokenIndex& index, const Where& where);
  // The slot that holds `pair`, or the empty one where it belongs.
  std::size_t slot_of(std::uint64_t pair) const;
  // Null if the two do not merge.
  const Merge* find(std::uint32_t left, std::uint32_t right) const;
  void encode_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  template <typename Queue>
  void encode_long(std::string_view word, Queue& queue, std::vector<std::int32_t>& ids) const;

  const Vocabulary* vocab_;
  std::array<std::int32_t, 256> byte_ids_{};  // -1: no such token
  std::vector<Merge> merges_;                 // open addressing, a power of two, at most half full
  bool ignore_merges_ = false;
  std::unordered_map<std::string_view, std::int32_t> whole_words_;  // filled if ignore_merges
};

}  // namespace moepack
