// tokenizer.json of a BPE tokenizer, over bytes or over characters with byte fallback, read into
// plain data.
//
// Source: HuggingFace `tokenizers`, the format that its Tokenizer::from_file reads. A setting that
// would change ids or text and is not described below is refused by name. Truncation and padding
// settings are ignored, as they are by the programs that serve these models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

// What becomes of the matches of a split pattern and of the text between them.
enum class SplitBehavior {
  kIsolated,            // every match and every gap is a piece
  kRemoved,             // matches vanish
  kMergedWithPrevious,  // a match joins the gap before it
  kMergedWithNext,      // a match joins the gap behind it
  kContiguous,          // neighbouring matches are one piece
};

struct SplitSpec {
  std::string pattern;   // Oniguruma (Ruby) syntax, or literal text
  bool is_regex = true;  // false: literal text
  bool invert = false;   // gaps and matches change places
  SplitBehavior behavior = SplitBehavior::kIsolated;
};

struct AddedTokenSpec {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool normalized = false;   // matched on the normalized text
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool single_word = false;  // not beside word characters
};

// Over what the BPE model merges, and so how the texts of model.vocab are written.
enum class SymbolKind {
  kBytes,       // bytes, in the byte-level alphabet
  kCharacters,  // characters as themselves; one without a token becomes its bytes' tokens <0xHH>
};

// A step of the normalizer beside NFC.
struct TextReplacement {
  // Literal; every occurrence is replaced. Empty: `replacement` is put before a text that is not.
  std::string pattern;
  std::string replacement;
};

// Puts `replacement` in the place of every space, before any split.
struct MetaspaceSpec {
  enum class Prepend { kNever, kFirst, kAlways };
  std::string replacement;
  // Whether a text that does not begin with `replacement` gets one before it: only the one at the
  // begin of everything, or each stretch between added tokens.
  Prepend prepend = Prepend::kAlways;
};

struct TokenizerSpec {
  SymbolKind symbols = SymbolKind::kBytes;
  std::vector<TextReplacement> replacements;  // in order; not together with `nfc`
  std::optional<MetaspaceSpec> metaspace;
  // Of the decoder, with kCharacters: what stands for a space in a token, and whether a space at
  // the begin of a text is dropped.
  std::string space_mark;
  bool strip_first_space = false;
  // All ways to split one token have the rank of the first of them: then the leftmost pair of the
  // same result is merged first, as tiktoken and SentencePiece do. A key of ours,
  // model.moepack_equal_ranks, that other programs ignore.
  bool equal_ranks = false;
  bool nfc = false;               // Unicode normalization form C before splitting
  std::vector<SplitSpec> splits;  // in order; each cuts the pieces of the one before
  bool add_prefix_space = false;  // puts a space before every piece that does not start with one
  bool split_gpt2 = false;        // after `splits`, GPT-2's own pattern cuts the pieces
  bool ignore_merges = false;     // a piece that is a token becomes that token without merging
  std::vector<AddedTokenSpec> added_tokens;
  // What the post-processor puts before a text, often one token and often none; nullopt: it has no
  // template, and says nothing about it.
  std::optional<std::vector<std::int32_t>> begin_of_text;
  // Token text as `symbols` says, and its id; the order of the file.
  std::vector<std::pair<std::string, std::int32_t>> vocab;
  // Pairs by rank: the first is applied first.
  std::vector<std::pair<std::string, std::string>> merges;
};

// kCorrupt: not what the format says. kUnsupported: well-formed, but something moepack does not do.
Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& file);
Result<TokenizerSpec> load_tokenizer_json(const std::filesystem::path& path);

}  // namespace moepack
