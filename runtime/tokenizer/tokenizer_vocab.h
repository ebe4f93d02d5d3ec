// Ids and the bytes they stand for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/status.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {

// Finds the id of a text in spec.vocab by its hash: a vocabulary of 250,000 texts is asked a
// million times while its merges are read. Refers to the spec, which must stay as it is.
class TokenIndex {
 public:
  explicit TokenIndex(const TokenizerSpec& spec);
  // -1 if there is no such token.
  std::int32_t find(std::string_view text) const;

 private:
  struct Slot {
    std::uint64_t hash = 0;
    const std::pair<std::string, std::int32_t>* token = nullptr;
  };
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

// Immutable once built; may be used by any number of threads.
class Vocabulary {
 public:
  // Refuses two texts with one id, one text with two ids, and ids far beyond the number of tokens.
  static Result<Vocabulary> build(const TokenizerSpec& spec, const TokenIndex& index,
                                  const Where& where);

  // The highest id + 1.
  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()) - 1; }
  // Empty for ids that stand for nothing.
  std::string_view bytes(std::int32_t id) const;
  // True if `id` is a token of the model over bytes, written in the byte-level alphabet, so that
  // bytes() are what merging must join to reach it.
  bool is_byte_level(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  std::int32_t added_token(std::string_view content) const;

 private:
  struct Entry {
    std::uint32_t begin = 0;  // in pool_; ends where the next one begins
    bool byte_level = false;
    bool special = false;
  };
  std::vector<Entry> entries_;  // one per id, and one behind the last
  std::string pool_;
  std::map<std::string, std::int32_t, std::less<>> added_;
};

// The byte that a token <0xHH> of a vocabulary with byte fallback stands for; -1: it is none. The
// digits are upper case.
int byte_of_fallback_token(std::string_view text);

}  // namespace moepack
