#include "convert/source/tiktoken_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "convert/source/byte_level_json.h"
#include "convert/source/gguf_pre_tokenizer.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/json_fields.h"
#include "formats/base/paths.h"
#include "formats/config/byte_alphabet.h"
#include "formats/config/companion_files.h"

namespace moepack {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxTokenBytes = 512;
constexpr std::uint32_t kSpecialIds = 256;
constexpr std::string_view kKimiClass = "TikTokenTokenizer";

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : (c == '/' ? 63 : -1);
}

// RFC 4648, section 4, with its padding and no other bits than those of the bytes.
std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : (text.ends_with("=") ? 1 : 0);
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int digit = base64_digit(c);
    if (digit < 0) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>((bits >> held) & 0xffU);
    bits &= (1U << held) - 1;
  }
  return bits == 0 ? std::optional(bytes) : std::nullopt;
}

struct RankedToken {
  std::string bytes;
  std::uint64_t rank = 0;
};

std::optional<RankedToken> parse_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto bytes = decode_base64(line.substr(0, space));
  if (!bytes.has_value()) return std::nullopt;
  RankedToken token{.bytes = *std::move(bytes)};
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, token.rank);
  return error == std::errc() && stop == end ? std::optional(std::move(token)) : std::nullopt;
}

std::string in_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += to_byte_alphabet(static_cast<std::uint8_t>(byte));
  return text;
}

using Ranks = std::unordered_map<std::string_view, std::uint32_t>;

Ranks ranks_of(const std::vector<std::string>& tokens) {
  Ranks ranks;
  ranks.reserve(tokens.size());
  for (std::uint32_t id = 0; id < tokens.size(); ++id) ranks.emplace(tokens[id], id);
  return ranks;
}

// Every way in which two tokens make `token`, those of low ranks first.
std::vector<std::array<std::uint32_t, 2>> ways_to_make(std::string_view token, const Ranks& ranks) {
  std::vector<std::array<std::uint32_t, 2>> ways;
  for (std::size_t at = 1; at < token.size(); ++at) {
    const auto left = ranks.find(token.substr(0, at));
    if (left == ranks.end()) continue;
    const auto right = ranks.find(token.substr(at));
    if (right != ranks.end()) ways.push_back({left->second, right->second});
  }
  std::sort(ways.begin(), ways.end());
  return ways;
}

Json added_token(std::uint32_t id, std::string_view content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// What tokenizer_config.json says of one added token.
Result<Json> declared_token(const JsonFields& list, const std::string& key, std::uint32_t id) {
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, list.object(key));
  MOE_ASSIGN_OR_RETURN(const std::string content, fields.string("content"));
  if (content.empty()) return fields.error("content", "is empty");
  const auto flag = [&](std::string_view name) {
    const nlohmann::json* value = fields.find(name);
    return value != nullptr && *value == true;
  };
  for (const std::string_view name : {"lstrip", "rstrip", "single_word"}) {
    if (flag(name)) return fields.error(name, "is set, which tiktoken does not know");
  }
  return added_token(id, content, flag("special"));
}

// The special tokens by id; those that are not declared have names of their own.
Result<std::map<std::uint32_t, Json>> special_tokens(const JsonFields& config, std::uint32_t first,
                                                     std::uint64_t vocab_size) {
  std::map<std::uint32_t, Json> specials;
  const std::uint64_t last =
      std::min<std::uint64_t>(vocab_size, std::uint64_t{first} + kSpecialIds);
  if (config.has("added_tokens_decoder")) {
    MOE_ASSIGN_OR_RETURN(const JsonFields list, config.object("added_tokens_decoder"));
    for (const auto& [key, value] : config.find("added_tokens_decoder")->items()) {
      const auto id = parse_index(key, static_cast<std::uint32_t>(last));
      if (!id.has_value() || *id < first) {
        return list.error(key, "is no id of a special token: those are " + std::to_string(first) +
                                   " to " + std::to_string(last) + ", the last left out");
      }
      MOE_ASSIGN_OR_RETURN(specials[*id], declared_token(list, key, *id));
    }
  }
  for (std::uint32_t id = first; id < last; ++id) {
    if (specials.contains(id)) continue;
    specials[id] = added_token(id, "<|reserved_token_" + std::to_string(id) + "|>", true);
  }
  return specials;
}

void append_model(const std::vector<std::string>& tokens, std::string& out) {
  const Ranks ranks = ranks_of(tokens);
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const std::string& token : tokens) texts.push_back(Json(in_alphabet(token)).dump());
  out +=
      ",\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
      "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false, "
      "\"byte_fallback\": false, \"ignore_merges\": true, \"moepack_equal_ranks\": true,\n"
      "\"vocab\": {";
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    out += (id == 0 ? "\n" : ",\n") + texts[id] + ": " + std::to_string(id);
  }
  out += "},\n\"merges\": [";
  std::string_view separator = "\n";
  for (const std::string& token : tokens) {
    for (const auto& [left, right] : ways_to_make(token, ranks)) {
      out += separator;
      out += "[" + texts[left] + ", " + texts[right] + "]";
      separator = ",\n";
    }
  }
  out += "]}}\n";
}

}  // namespace

Result<std::vector<std::string>> parse_tiktoken(std::string_view text, const std::string& file) {
  const auto bad = [&](std::size_t line, const std::string& what) {
    return corrupt(Where{.file = file}, "line " + std::to_string(line) + " " + what,
                   "download the file again");
  };
  const auto most = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  std::vector<std::string> tokens;
  std::vector<std::size_t> lines;  // by rank: where the token stands; 0: not yet
  std::size_t line_number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto token = parse_line(line);
    if (!token.has_value()) return bad(line_number, "is not base64, a space and a rank");
    if (token->bytes.size() > kMaxTokenBytes) {
      return unsupported(Where{.file = file}, "line " + std::to_string(line_number) +
                                                  " has a token of " +
                                                  std::to_string(token->bytes.size()) + " bytes");
    }
    // Ranks without holes are below the number of lines.
    if (token->rank >= most) return bad(line_number, "has a rank beyond all tokens");
    if (token->rank >= tokens.size()) {
      tokens.resize(token->rank + 1);
      lines.resize(token->rank + 1);
    }
    if (lines[token->rank] != 0) {
      return bad(line_number, "has the rank of line " + std::to_string(lines[token->rank]));
    }
    lines[token->rank] = line_number;
    tokens[token->rank] = std::move(token->bytes);
  }
  const auto hole = std::find(lines.begin(), lines.end(), 0U);
  if (hole != lines.end()) {
    return corrupt(Where{.file = file},
                   "has no token of rank " + std::to_string(hole - lines.begin()),
                   "download the file again");
  }
  const Ranks ranks = ranks_of(tokens);
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if (ranks.at(tokens[id]) != id) return bad(lines[id], "has a token that stands twice");
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto c = static_cast<char>(byte);
    if (ranks.contains(std::string_view(&c, 1))) continue;
    return corrupt(Where{.file = file}, "has no token for byte " + std::to_string(byte),
                   "download the file again");
  }
  return tokens;
}

Result<std::string> tiktoken_tokenizer_text(const std::vector<std::string>& tokens,
                                            std::string_view config, const std::string& config_file,
                                            std::uint64_t vocab_size) {
  MOE_ASSIGN_OR_RETURN(const nlohmann::json json, parse_json(config, Where{.file = config_file}));
  MOE_ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::of(json, config_file));
  MOE_ASSIGN_OR_RETURN(const std::string kind, fields.string("tokenizer_class"));
  if (kind != kKimiClass) {
    return unsupported(Where{.file = config_file},
                       "tokenizer_class is \"" + printable(kind, 64) + "\"; of " + kTiktokenName +
                           " only " + std::string(kKimiClass) + "'s pattern is known");
  }
  if (tokens.size() > vocab_size) {
    return corrupt(Where{.file = config_file}, std::string("stands beside a ") + kTiktokenName +
                                                   " of " + std::to_string(tokens.size()) +
                                                   " tokens, and config.json has a vocab_size of " +
                                                   std::to_string(vocab_size));
  }
  MOE_ASSIGN_OR_RETURN(
      const auto specials,
      special_tokens(fields, static_cast<std::uint32_t>(tokens.size()), vocab_size));
  MOE_ASSIGN_OR_RETURN(const GgufPreTokenizer kimi, gguf_pre_tokenizer("kimi-k2", {}));
  std::string out = R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [)";
  std::string_view separator = "\n";
  for (const auto& [id, token] : specials) {
    out += separator;
    out += token.dump();
    separator = ",\n";
  }
  out += "],\n\"normalizer\": null,\n\"pre_tokenizer\": " +
         byte_level_splits_json(kimi.patterns).dump();
  out += ",\n\"post_processor\": " + byte_level_json().dump();
  out += ",\n\"decoder\": " + byte_level_json().dump();
  append_model(tokens, out);
  return out;
}

Result<std::optional<std::string>> tokenizer_from_other_files(
    const std::filesystem::path& directory, std::uint64_t vocab_size,
    std::vector<std::string>& notes) {
  const std::string remedy =
      "; moepack cannot run texts without tokenizer.json: make it with "
      "transformers, AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)";
  const std::filesystem::path path = directory / kTiktokenName;
  if (!is_there(path)) {
    if (is_there(directory / kSentencePieceName)) {
      notes.push_back(std::string(kSentencePieceName) + ", a SentencePiece model, is not read" +
                      remedy);
    }
    return std::optional<std::string>();
  }
  MOE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxTiktokenBytes));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> tokens, parse_tiktoken(text, path.string()));
  MOE_ASSIGN_OR_RETURN(const auto config, read_companion(directory, kTokenizerConfigName));
  if (!config.has_value()) {
    notes.push_back(std::string(kTiktokenName) + " is not used, for want of " +
                    kTokenizerConfigName + remedy);
    return std::optional<std::string>();
  }
  auto made = tiktoken_tokenizer_text(tokens, *config, (directory / kTokenizerConfigName).string(),
                                      vocab_size);
  if (made.status().code() == StatusCode::kUnsupported) {
    notes.push_back(made.status().message() + remedy);
    return std::optional<std::string>();
  }
  MOE_RETURN_IF_ERROR(made.status());
  return std::optional(std::move(made).value());
}

}  // namespace moepack
