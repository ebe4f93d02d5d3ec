// A tokenizer.json made of the tokenizer files of a checkpoint that has none: Kimi K2's
// tiktoken.model with its tokenizer_config.json.
//
// Source: tiktoken (load_tiktoken_bpe, _byte_pair_merge) and tokenization_kimi.py of the published
// checkpoints. A line of the file is a token's bytes in base64, a space and its rank, which is its
// id. tiktoken merges, of all neighbours whose joined bytes are a token, those of the lowest rank,
// the leftmost first; so a token has a merge for each way in which two tokens make it, all of one
// rank (TokenizerSpec::equal_ranks). A piece that is a token is not merged. The 256 ids behind
// the ranks are special tokens: those that added_tokens_decoder names, and <|reserved_token_ID|>.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/status.h"

namespace moepack {

constexpr const char* kTiktokenName = "tiktoken.model";
constexpr const char* kSentencePieceName = "tokenizer.model";
constexpr std::uint64_t kMaxTiktokenBytes = std::uint64_t{16} << 20;

// The bytes of every token, by rank. kCorrupt, naming `file` and the line: something else than
// base64, a space and a number; a token or a rank that stands twice; ranks that are not 0, 1, 2, …;
// a byte that is no token of its own. kUnsupported: a token of more than 512 bytes.
Result<std::vector<std::string>> parse_tiktoken(std::string_view text, const std::string& file);

// `config`: the text of tokenizer_config.json, `config_file` its name in errors. Ids from
// `vocab_size` on are left out. kUnsupported: a tokenizer_class whose pattern is not known;
// kCorrupt: added tokens that are not among the ids behind the ranks.
Result<std::string> tiktoken_tokenizer_text(const std::vector<std::string>& tokens,
                                            std::string_view config, const std::string& config_file,
                                            std::uint64_t vocab_size);

// tokenizer.json for a checkpoint in `directory` that has none; nullopt where nothing that it has
// can be used, and then a note in `notes` if it has another file for it.
Result<std::optional<std::string>> tokenizer_from_other_files(
    const std::filesystem::path& directory, std::uint64_t vocab_size,
    std::vector<std::string>& notes);

}  // namespace moepack
