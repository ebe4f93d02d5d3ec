// tokenizer.json of a byte-level BPE tokenizer, read into plain data.
//
// Source: HuggingFace `tokenizers`, the format that its Tokenizer::from_file reads. A setting that
// would change ids or text and is not described below is refused by name. Truncation and padding
// settings are ignored, as they are by the programs that serve these models.
#pragma once

#include <cstdint>
#include <filesystem>
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

struct TokenizerSpec {
  bool nfc = false;               // Unicode normalization form C before splitting
  std::vector<SplitSpec> splits;  // in order; each cuts the pieces of the one before
  bool add_prefix_space = false;  // puts a space before every piece that does not start with one
  bool split_gpt2 = false;        // after `splits`, GPT-2's own pattern cuts the pieces
  bool ignore_merges = false;     // a piece that is a token becomes that token without merging
  std::vector<AddedTokenSpec> added_tokens;
  // Token text in the byte-level alphabet, and its id; the order of the file.
  std::vector<std::pair<std::string, std::int32_t>> vocab;
  // Pairs by rank: the first is applied first.
  std::vector<std::pair<std::string, std::string>> merges;
};

// kCorrupt: not what the format says. kUnsupported: well-formed, but something moepack does not do.
Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& file);
Result<TokenizerSpec> load_tokenizer_json(const std::filesystem::path& path);

}  // namespace moepack
