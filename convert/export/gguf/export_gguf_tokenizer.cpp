#include "convert/export/gguf/export_gguf_tokenizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "convert/source/gguf_pre_tokenizer.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/config/companion_files.h"
#include "formats/config/special_token.h"
#include "formats/config/tokenizer_json.h"

namespace moepack {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kEndOfText = "<|endoftext|>";  // ends a text in llama.cpp by its name

// llama.cpp's numbers of tokenizer.ggml.token_type.
enum TokenType : std::int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

// Also where the tokenizer says otherwise: llama.cpp's converter does so.
bool looks_special(std::string_view text) {
  return text.size() >= 4 && text.starts_with("<|") && text.ends_with("|>");
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> types;
  std::map<std::string, std::uint32_t, std::less<>> added;  // text to id
};

Status place(std::int32_t id, const std::string& text, TokenType type, const std::string& file,
             Tokens& tokens) {
  const auto bad = [&](const std::string& what) {
    return corrupt(Where{.file = file},
                   "token " + printable(text, 64) + " has id " + std::to_string(id) + ", " + what);
  };
  if (id < 0 || static_cast<std::size_t>(id) >= tokens.texts.size()) {
    return bad("the model has " + std::to_string(tokens.texts.size()) + " ids");
  }
  const auto at = static_cast<std::size_t>(id);
  // An added token may stand in the vocabulary as well.
  if (tokens.types[at] != kUnused && tokens.texts[at] != text) {
    return bad("as has " + printable(tokens.texts[at], 64));
  }
  tokens.texts[at] = text;
  tokens.types[at] = type;
  return Status::ok();
}

Result<Tokens> list_tokens(const TokenizerSpec& spec, std::uint32_t vocabulary,
                           const std::string& file) {
  Tokens tokens;
  tokens.texts.resize(vocabulary);
  tokens.types.resize(vocabulary, kUnused);
  for (const auto& [text, id] : spec.vocab) {
    MOE_RETURN_IF_ERROR(place(id, text, kNormal, file, tokens));
  }
  for (const AddedTokenSpec& token : spec.added_tokens) {
    const bool is_control = token.special || looks_special(token.content);
    MOE_RETURN_IF_ERROR(
        place(token.id, token.content, is_control ? kControl : kUserDefined, file, tokens));
    tokens.added.emplace(token.content, static_cast<std::uint32_t>(token.id));
  }
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.types[id] == kUnused) tokens.texts[id] = "[PAD" + std::to_string(id) + "]";
  }
  return tokens;
}

Result<std::string_view> pre_tokenizer_name(const TokenizerSpec& spec, const std::string& file) {
  std::vector<std::string_view> patterns;
  bool is_plain = spec.symbols == SymbolKind::kBytes && !spec.add_prefix_space &&
                  !spec.split_gpt2 && !spec.ignore_merges && !spec.equal_ranks;
  for (const SplitSpec& split : spec.splits) {
    is_plain =
        is_plain && split.is_regex && !split.invert && split.behavior == SplitBehavior::kIsolated;
    patterns.emplace_back(split.pattern);
  }
  const auto row = find_gguf_pre_tokenizer(patterns);
  if (is_plain && row.has_value()) return row->name;
  return unsupported(Where{.file = file},
                     "cuts text by rules that llama.cpp has no name for; known are those of " +
                         gguf_pre_tokenizer_names());
}

Result<std::vector<std::string>> merge_lines(const TokenizerSpec& spec, const std::string& file) {
  std::vector<std::string> lines;
  lines.reserve(spec.merges.size());
  for (const auto& [left, right] : spec.merges) {
    if (left.find(' ') != std::string::npos || right.find(' ') != std::string::npos) {
      return unsupported(Where{.file = file}, "merge " + std::to_string(lines.size()) +
                                                  " holds a space, which GGUF separates them by");
    }
    lines.emplace_back(left).append(" ").append(right);
  }
  return lines;
}

// The companion `name` of the model, an object; empty where there is no such file.
Result<Json> read_object(const fs::path& model, std::string_view name) {
  MOE_ASSIGN_OR_RETURN(const std::optional<std::string> text, read_companion(model, name));
  if (!text.has_value()) return Json::object();
  const std::string file = (model / name).string();
  MOE_ASSIGN_OR_RETURN(Json json, parse_json(*text, Where{.file = file}));
  if (json.is_object()) return json;
  return corrupt(Where{.file = file}, "is no JSON object");
}

// What the model directory says of special tokens.
struct SpecialFiles {
  Json tokenizer;   // tokenizer_config.json
  Json generation;  // generation_config.json
  std::string tokenizer_file;
};

// "eos_token": its text, or an object with it.
Result<std::optional<std::uint32_t>> token_id(const SpecialFiles& files, const char* name,
                                              const Tokens& tokens) {
  using Id = std::optional<std::uint32_t>;
  const std::string key = std::string(name) + "_token";
  if (const auto content = special_token_text(files.tokenizer, key)) {
    if (const auto at = tokens.added.find(*content); at != tokens.added.end()) {
      return Id(at->second);
    }
    const auto at = std::find(tokens.texts.begin(), tokens.texts.end(), *content);
    if (at != tokens.texts.end()) {
      return Id(static_cast<std::uint32_t>(at - tokens.texts.begin()));
    }
    return corrupt(Where{.file = files.tokenizer_file},
                   key + " is " + printable(*content, 64) + ", which is no token");
  }
  const auto number = files.generation.find(key + "_id");
  if (number != files.generation.end() && number->is_number_unsigned() &&
      number->get<std::uint64_t>() < tokens.texts.size()) {
    return Id(number->get<std::uint32_t>());
  }
  return Id();
}

// The ids that end a text, as config.json and generation_config.json list them.
std::vector<std::uint32_t> end_ids(const SpecialFiles& files, const ModelConfig& config) {
  std::vector<std::uint32_t> ids(config.eos_token_ids.begin(), config.eos_token_ids.end());
  const auto entry = files.generation.find("eos_token_id");
  if (entry == files.generation.end()) return ids;
  const Json list = entry->is_array() ? *entry : Json::array({*entry});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= config.vocab_size) continue;
    const auto number = id.get<std::uint32_t>();
    if (std::find(ids.begin(), ids.end(), number) == ids.end()) ids.push_back(number);
  }
  return ids;
}

// Whether bos_token stands before texts: the post-processor's template says so, or a key does.
Status add_begin_of_text(const TokenizerSpec& spec, const SpecialFiles& files,
                         std::optional<std::uint32_t> bos, GgufHead& head) {
  constexpr const char* kKey = "tokenizer.ggml.add_bos_token";
  const bool is_bos = bos.has_value() && spec.begin_of_text.has_value() &&
                      spec.begin_of_text->size() == 1 &&
                      static_cast<std::uint32_t>(spec.begin_of_text->front()) == *bos;
  if (is_bos) return head.add(kKey, true);
  const auto add_bos = files.tokenizer.find("add_bos_token");
  if (add_bos == files.tokenizer.end() || !add_bos->is_boolean()) return Status::ok();
  const bool is_denied = spec.begin_of_text.has_value() && spec.begin_of_text->empty();
  return head.add(kKey, add_bos->get<bool>() && !is_denied);
}

Status add_special_tokens(const TokenizerSpec& spec, const SpecialFiles& files,
                          const ModelConfig& config, const Tokens& tokens, GgufHead& head,
                          std::vector<std::string>& notes) {
  MOE_ASSIGN_OR_RETURN(const auto bos, token_id(files, "bos", tokens));
  MOE_ASSIGN_OR_RETURN(auto eos, token_id(files, "eos", tokens));
  MOE_ASSIGN_OR_RETURN(const auto pad, token_id(files, "pad", tokens));
  std::vector<std::uint32_t> ends = end_ids(files, config);
  if (!eos.has_value() && !ends.empty()) eos = ends.front();
  std::erase_if(ends,
                [&](std::uint32_t id) { return id == eos || tokens.texts[id] == kEndOfText; });
  if (bos.has_value()) MOE_RETURN_IF_ERROR(head.add("tokenizer.ggml.bos_token_id", *bos));
  if (eos.has_value()) MOE_RETURN_IF_ERROR(head.add("tokenizer.ggml.eos_token_id", *eos));
  if (!ends.empty()) MOE_RETURN_IF_ERROR(head.add("tokenizer.ggml.eot_token_id", ends[0]));
  if (ends.size() > 1) MOE_RETURN_IF_ERROR(head.add("tokenizer.ggml.eom_token_id", ends[1]));
  if (ends.size() > 2) {
    notes.push_back("of the ids that end a text, " + std::to_string(ends.size() - 2) +
                    " have no key in GGUF and are left out");
  }
  if (pad.has_value()) MOE_RETURN_IF_ERROR(head.add("tokenizer.ggml.padding_token_id", *pad));
  return add_begin_of_text(spec, files, bos, head);
}

Status add_chat_template(const fs::path& model, const SpecialFiles& files, GgufHead& head) {
  constexpr const char* kKey = "tokenizer.chat_template";
  MOE_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                       read_companion(model, kChatTemplateName));
  if (text.has_value()) return head.add(kKey, std::string_view(*text));
  const auto entry = files.tokenizer.find("chat_template");
  if (entry == files.tokenizer.end() || !entry->is_string()) return Status::ok();
  return head.add(kKey, std::string_view(entry->get_ref<const std::string&>()));
}

}  // namespace

Status add_tokenizer_keys(const fs::path& model, const ModelConfig& config, GgufHead& head,
                          std::vector<std::string>& notes) {
  const fs::path path = model / kTokenizerName;
  const std::string file = path.string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return not_found(Where{.file = file}, "is missing; a GGUF file holds the tokenizer",
                     "add the model's own");
  }
  MOE_ASSIGN_OR_RETURN(const TokenizerSpec spec, load_tokenizer_json(path));
  MOE_ASSIGN_OR_RETURN(const std::string_view pre, pre_tokenizer_name(spec, file));
  MOE_ASSIGN_OR_RETURN(const Tokens tokens, list_tokens(spec, config.vocab_size, file));
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> merges, merge_lines(spec, file));
  SpecialFiles files;
  files.tokenizer_file = (model / kTokenizerConfigName).string();
  MOE_ASSIGN_OR_RETURN(files.tokenizer, read_object(model, kTokenizerConfigName));
  MOE_ASSIGN_OR_RETURN(files.generation, read_object(model, kGenerationConfigName));
  MOE_RETURN_IF_ERROR(head.add("tokenizer.ggml.model", "gpt2"));
  MOE_RETURN_IF_ERROR(head.add("tokenizer.ggml.pre", pre));
  MOE_RETURN_IF_ERROR(
      head.add_list("tokenizer.ggml.tokens", std::span<const std::string>(tokens.texts)));
  MOE_RETURN_IF_ERROR(
      head.add_list("tokenizer.ggml.token_type", std::span<const std::int32_t>(tokens.types)));
  MOE_RETURN_IF_ERROR(head.add_list("tokenizer.ggml.merges", std::span<const std::string>(merges)));
  MOE_RETURN_IF_ERROR(add_special_tokens(spec, files, config, tokens, head, notes));
  return add_chat_template(model, files, head);
}

}  // namespace moepack
