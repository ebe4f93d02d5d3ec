#include "convert/source/gguf_tokenizer.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "convert/source/byte_level_json.h"
#include "convert/source/gguf_pre_tokenizer.h"
#include "convert/source/gguf_vocabulary.h"
#include "formats/base/utf8.h"
#include "formats/config/companion_files.h"

namespace moepack {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr std::string_view kTemplate = "tokenizer.chat_template";
constexpr std::string_view kTemplateNames = "tokenizer.chat_templates";
constexpr std::size_t kMaxTemplateName = 128;
// As large as the file that it becomes may be; of the named ones together.
constexpr std::uint64_t kMaxTemplateBytes = companion_max_bytes(kChatTemplateName);
// Control characters in made-up tokens take six bytes each; the largest real files have 30 MiB.
constexpr std::size_t kMaxJsonBytes = std::size_t{64} << 20;

std::string ggml_key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

// `text` is UTF-8.
std::string json_string(std::string_view text) { return Json(text).dump(); }

std::string added_token_json(const GgufVocabulary& vocabulary, std::uint32_t id) {
  return Json{{"id", id},
              {"content", vocabulary.text(id)},
              {"single_word", false},
              {"lstrip", false},
              {"rstrip", false},
              {"normalized", false},
              {"special", vocabulary.kind(id) == GgufTokenKind::kControl}}
      .dump();
}

// One element a line.
class Lines {
 public:
  explicit Lines(std::string& out) : out_(out) {}
  void add(std::string_view line) {
    out_ += first_ ? "\n" : ",\n";
    out_ += line;
    first_ = false;
  }

 private:
  std::string& out_;
  bool first_ = true;
};

// `file` names the GGUF file in errors.
Result<std::string> tokenizer_text(const GgufVocabulary& vocabulary, const GgufPreTokenizer& pre,
                                   const std::string& file) {
  std::string out = R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [)";
  const auto too_long = [&] {
    return unsupported(Where{.file = file}, "tokenizer.json would have more than " +
                                                std::to_string(kMaxJsonBytes) +
                                                " bytes, as no real one has");
  };
  Lines added(out);
  for (std::uint32_t id = 0; id < vocabulary.size(); ++id) {
    if (out.size() > kMaxJsonBytes) return too_long();
    const GgufTokenKind kind = vocabulary.kind(id);
    if (kind == GgufTokenKind::kControl || kind == GgufTokenKind::kUserDefined) {
      added.add(added_token_json(vocabulary, id));
    }
  }
  out += "],\n\"normalizer\": " + (pre.nfc ? Json{{"type", "NFC"}} : Json()).dump();
  out += ",\n\"pre_tokenizer\": " + byte_level_splits_json(pre.patterns).dump();
  out += ",\n\"post_processor\": " + byte_level_json().dump();
  out += ",\n\"decoder\": " + byte_level_json().dump();
  out +=
      ",\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
      "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", \"fuse_unk\": false, "
      "\"byte_fallback\": false, \"ignore_merges\": false,\n\"vocab\": {";
  Lines vocab(out);
  for (std::uint32_t id = 0; id < vocabulary.size(); ++id) {
    if (out.size() > kMaxJsonBytes) return too_long();
    if (!vocabulary.in_model(id)) continue;
    vocab.add(json_string(vocabulary.text(id)) + ": " + std::to_string(id));
  }
  out += "},\n\"merges\": [";
  Lines merges(out);
  for (const GgufMerge& merge : vocabulary.merges()) {
    if (out.size() > kMaxJsonBytes) return too_long();
    merges.add("[" + json_string(vocabulary.text(merge.left)) + ", " +
               json_string(vocabulary.text(merge.right)) + "]");
  }
  out += "]}}\n";
  return out;
}

// The special tokens' ids; nullopt where the file names none.
struct SpecialIds {
  std::optional<std::uint32_t> bos;
  std::optional<std::uint32_t> eos;
  std::optional<std::uint32_t> pad;
  std::vector<std::uint32_t> ends;  // all that end a text, eos first
};

Result<std::optional<std::uint32_t>> read_id(const GgufMetadata& metadata, std::string_view name,
                                             const GgufVocabulary& vocabulary) {
  const std::string key = ggml_key(name);
  if (!metadata.has(key)) return std::optional<std::uint32_t>();
  MOE_ASSIGN_OR_RETURN(const std::uint64_t id, metadata.number(key, vocabulary.size() - 1));
  return std::optional(static_cast<std::uint32_t>(id));
}

Result<SpecialIds> read_special_ids(const GgufMetadata& metadata,
                                    const GgufVocabulary& vocabulary) {
  SpecialIds ids;
  MOE_ASSIGN_OR_RETURN(ids.bos, read_id(metadata, "bos_token_id", vocabulary));
  MOE_ASSIGN_OR_RETURN(ids.eos, read_id(metadata, "eos_token_id", vocabulary));
  MOE_ASSIGN_OR_RETURN(ids.pad, read_id(metadata, "padding_token_id", vocabulary));
  MOE_ASSIGN_OR_RETURN(const auto eot, read_id(metadata, "eot_token_id", vocabulary));
  MOE_ASSIGN_OR_RETURN(const auto eom, read_id(metadata, "eom_token_id", vocabulary));
  auto end_of_text = vocabulary.find("<|endoftext|>");
  if (end_of_text.has_value() && vocabulary.kind(*end_of_text) != GgufTokenKind::kControl) {
    end_of_text.reset();
  }
  for (const auto& id : {ids.eos, eot, eom, end_of_text}) {
    const bool is_new =
        id.has_value() && std::find(ids.ends.begin(), ids.ends.end(), *id) == ids.ends.end();
    if (is_new) ids.ends.push_back(*id);
  }
  return ids;
}

Result<std::string> tokenizer_config_text(const GgufMetadata& metadata,
                                          const GgufVocabulary& vocabulary, const SpecialIds& ids) {
  Json config;
  const std::string add_bos = ggml_key("add_bos_token");
  if (metadata.has(add_bos)) {
    MOE_ASSIGN_OR_RETURN(const bool value, metadata.boolean(add_bos));
    config["add_bos_token"] = value;
  }
  // An id may stand for nothing: then only generation_config.json has it.
  const auto put = [&](const char* key, const std::optional<std::uint32_t>& id) {
    const bool has_text = id.has_value() && vocabulary.kind(*id) != GgufTokenKind::kAbsent;
    config[key] = has_text ? Json(vocabulary.text(*id)) : Json();
  };
  put("bos_token", ids.bos);
  config["clean_up_tokenization_spaces"] = false;
  put("eos_token", ids.eos);
  put("pad_token", ids.pad);
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return config.dump(2) + "\n";
}

std::string generation_config_text(const SpecialIds& ids) {
  Json config = Json::object();
  if (ids.bos.has_value()) config["bos_token_id"] = *ids.bos;
  if (ids.ends.size() == 1) config["eos_token_id"] = ids.ends.front();
  if (ids.ends.size() > 1) config["eos_token_id"] = ids.ends;
  if (ids.pad.has_value()) config["pad_token_id"] = *ids.pad;
  return config.dump(2) + "\n";
}

// Absent keys pass: their getters say so.
Status check_size(const GgufMetadata& metadata, std::string_view key, std::uint64_t most,
                  const std::string& file) {
  const GgufEntry* entry = metadata.find(key);
  if (entry == nullptr || entry->bytes <= most) return Status::ok();
  return unsupported(Where{.file = file, .offset = entry->offset},
                     "key " + std::string(key) + " has " + std::to_string(entry->bytes) +
                         " bytes, at most " + std::to_string(most) + " are handled");
}

Result<std::string> read_text(const GgufMetadata& metadata, const std::string& key,
                              const std::string& file, std::uint64_t most = kMaxTokenizerKeyBytes) {
  MOE_RETURN_IF_ERROR(check_size(metadata, key, most, file));
  MOE_ASSIGN_OR_RETURN(std::string text, metadata.string(key));
  if (find_invalid_utf8(text) != std::string_view::npos) {
    return corrupt(Where{.file = file, .offset = metadata.find(key)->offset},
                   "key " + key + " is not UTF-8", "make the file again");
  }
  return text;
}

// The converter leaves nothing else in names, so that they are safe in a path.
bool is_template_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  return !name.empty() && name.size() <= kMaxTemplateName &&
         std::all_of(name.begin(), name.end(), fits);
}

// Sorted: the converter writes them in any order.
Result<std::vector<std::string>> template_names(const GgufMetadata& metadata,
                                                const std::string& file) {
  std::vector<std::string> names;
  const GgufEntry* entry = metadata.find(kTemplateNames);
  if (entry == nullptr) return names;
  MOE_RETURN_IF_ERROR(check_size(metadata, kTemplateNames, kMaxTokenizerKeyBytes, file));
  const auto bad = [&](const std::string& name, std::string_view what) {
    return corrupt(Where{.file = file, .offset = entry->offset},
                   "key " + std::string(kTemplateNames) + ": the name \"" + printable(name, 64) +
                       "\" " + std::string(what),
                   "make the file again");
  };
  MOE_RETURN_IF_ERROR(metadata.for_each_string(kTemplateNames, [&](std::string& name) {
    if (!is_template_name(name)) {
      return bad(name, "is not 1 to 128 letters, digits and underscores");
    }
    names.push_back(std::move(name));
    return Status::ok();
  }));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return bad(*twice, "stands twice");
  return names;
}

Status add_templates(const GgufMetadata& metadata, const std::string& file,
                     std::vector<NamedText>& files) {
  const std::string main(kTemplate);
  if (metadata.has(main)) {
    MOE_ASSIGN_OR_RETURN(std::string text, read_text(metadata, main, file, kMaxTemplateBytes));
    files.push_back({kChatTemplateName, std::move(text)});
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<std::string> names, template_names(metadata, file));
  std::uint64_t bytes = 0;
  for (const std::string& name : names) {
    MOE_ASSIGN_OR_RETURN(
        std::string text,
        read_text(metadata, std::string(main).append(".").append(name), file, kMaxTemplateBytes));
    bytes += text.size();
    if (bytes > kMaxTemplateBytes) {
      return unsupported(Where{.file = file, .offset = metadata.find(kTemplateNames)->offset},
                         "the templates of " + std::string(kTemplateNames) + " have more than " +
                             std::to_string(kMaxTemplateBytes) + " bytes");
    }
    files.push_back({"additional_chat_templates/" + name + ".jinja", std::move(text)});
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<NamedText>> gguf_tokenizer_files(const GgufModel& model) {
  const GgufMetadata& metadata = model.metadata();
  const std::string file = model.parts().front().file().path();
  const std::string model_key = ggml_key("model");
  MOE_ASSIGN_OR_RETURN(const std::string kind, read_text(metadata, model_key, file));
  if (kind != "gpt2") {
    return unsupported(Where{.file = file, .offset = metadata.find(model_key)->offset},
                       model_key + " is \"" + printable(kind, 64) +
                           "\"; only \"gpt2\", byte-level BPE, is implemented",
                       "convert the model's HuggingFace checkpoint instead");
  }
  const std::string pre_key = ggml_key("pre");
  MOE_ASSIGN_OR_RETURN(const std::string pre_name, read_text(metadata, pre_key, file));
  const Where pre_where{.file = file, .offset = metadata.find(pre_key)->offset};
  MOE_ASSIGN_OR_RETURN(const GgufPreTokenizer pre, gguf_pre_tokenizer(pre_name, pre_where));
  MOE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, GgufVocabulary::read(metadata, file));
  MOE_ASSIGN_OR_RETURN(const SpecialIds ids, read_special_ids(metadata, vocabulary));

  std::vector<NamedText> files;
  MOE_ASSIGN_OR_RETURN(std::string tokenizer, tokenizer_text(vocabulary, pre, file));
  files.push_back({"tokenizer.json", std::move(tokenizer)});
  MOE_ASSIGN_OR_RETURN(std::string config, tokenizer_config_text(metadata, vocabulary, ids));
  files.push_back({"tokenizer_config.json", std::move(config)});
  files.push_back({"generation_config.json", generation_config_text(ids)});
  MOE_RETURN_IF_ERROR(add_templates(metadata, file, files));
  return files;
}

}  // namespace moepack
