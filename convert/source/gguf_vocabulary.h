// The vocabulary and the merges of a byte-level BPE tokenizer in a GGUF file, checked.
//
// Source: llama.cpp's conversion (get_vocab_base, SpecialVocab) and include/llama.h (token types).
// An id is a token's place in tokenizer.ggml.tokens. Texts of normal tokens are in the byte-level
// alphabet, those of control and user-defined tokens literal.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"
#include "formats/gguf/gguf_metadata.h"

namespace moepack {

// Of tokens, of merges and of each other key of the tokenizer, as the file holds them; the largest
// published vocabularies have 5 MiB. Bounds memory: about four times the bytes of tokens and
// merges.
constexpr std::uint64_t kMaxTokenizerKeyBytes = std::uint64_t{16} << 20;

enum class GgufTokenKind : std::uint8_t {
  kNormal,       // of the BPE model
  kControl,      // added, special
  kUserDefined,  // added, not special
  kAbsent,       // a hole: the converter's placeholder for an id without a token
};

struct GgufMerge {
  std::uint32_t left;  // ids
  std::uint32_t right;
};

// Immutable; any number of threads.
class GgufVocabulary {
 public:
  // Errors name `file` (that of `metadata`), key, element and offset. kNotFound: a key is missing;
  // kUnsupported: token types that byte-level BPE has no use for (unknown, byte), keys beyond
  // kMaxTokenizerKeyBytes; kCorrupt: no tokens, types of another number or outside 1 to 6, text
  // that is not UTF-8, a text that stands twice, merges that are not two tokens that make a third.
  static Result<GgufVocabulary> read(const GgufMetadata& metadata, const std::string& file);

  std::uint32_t size() const { return static_cast<std::uint32_t>(kinds_.size()); }
  std::string_view text(std::uint32_t id) const {
    return std::string_view(pool_).substr(begins_[id], begins_[id + 1] - begins_[id]);
  }
  GgufTokenKind kind(std::uint32_t id) const { return kinds_[id]; }
  // True for normal tokens, and for added ones that a merge makes or uses.
  bool in_model(std::uint32_t id) const { return in_model_[id]; }
  std::optional<std::uint32_t> find(std::string_view text) const;
  // By rank: the first is applied first.
  std::span<const GgufMerge> merges() const { return merges_; }

 private:
  Status read_texts(const GgufMetadata& metadata, const std::string& file);
  Status read_kinds(const GgufMetadata& metadata, const std::string& file);
  Status index_texts(const GgufEntry& entry, const std::string& file);
  Status read_merges(const GgufMetadata& metadata, const std::string& file);
  Result<GgufMerge> parse_merge(std::string_view line, std::string& joined, const Where& where,
                                std::size_t rank);

  std::string pool_;                   // all texts behind each other
  std::vector<std::uint32_t> begins_;  // into pool_, one more than tokens
  std::vector<GgufTokenKind> kinds_;
  std::vector<bool> in_model_;
  std::vector<std::uint32_t> by_text_;  // ids, sorted by text; without absent ones
  std::vector<GgufMerge> merges_;
};

}  // namespace moepack
