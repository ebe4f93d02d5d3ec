#include "formats/config/tokenizer_settings.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "formats/base/json.h"

namespace moepack {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxSplits = 16;
constexpr std::size_t kMaxReplacements = 16;
constexpr std::size_t kMaxGrowth = 64;  // of a text, by all replacements together
constexpr std::uint64_t kMostId = std::numeric_limits<std::int32_t>::max() - 1;
constexpr const char* kEqualRanks = "moepack_equal_ranks";

// Reads the tree part. `at` in messages is the path of keys.
class Interpreter {
 public:
  Interpreter(const std::string& file, TokenizerSpec& spec) : where_{.file = file}, spec_(spec) {}

  Status run(const Json& root) {
    MOE_RETURN_IF_ERROR(read_normalizer(member(root, "normalizer"), "normalizer"));
    MOE_RETURN_IF_ERROR(read_pre_tokenizer(member(root, "pre_tokenizer"), "pre_tokenizer"));
    MOE_RETURN_IF_ERROR(check_symbols());
    MOE_RETURN_IF_ERROR(read_post_processor(member(root, "post_processor"), "post_processor"));
    MOE_RETURN_IF_ERROR(read_decoder(member(root, "decoder"), "decoder"));
    return read_added_tokens(member(root, "added_tokens"));
  }

  Status read_model(const Json& root) {
    const Json& model = member(root, "model");
    if (!model.is_object()) return corrupt(where_, "\"model\" is missing or not an object");
    if (model.contains("type")) {
      MOE_ASSIGN_OR_RETURN(const std::string type, text(model, "type", "model"));
      if (type != "BPE") return unknown("model", type);
    }
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = member(model, key);
      if (!value.is_null() && value != "") {
        return unsupported(where_, std::string("model.") + key + " is not implemented");
      }
    }
    const Json& dropout = member(model, "dropout");
    if (!dropout.is_null() && !(dropout.is_number() && dropout.get<double>() == 0.0)) {
      return unsupported(where_, "model.dropout is not implemented");
    }
    MOE_ASSIGN_OR_RETURN(const bool fallback, flag(model, "byte_fallback", false, "model"));
    spec_.symbols = fallback ? SymbolKind::kCharacters : SymbolKind::kBytes;
    MOE_ASSIGN_OR_RETURN(spec_.ignore_merges, flag(model, "ignore_merges", false, "model"));
    MOE_ASSIGN_OR_RETURN(spec_.equal_ranks, flag(model, kEqualRanks, false, "model"));
    return Status::ok();
  }

 private:
  static const Json& member(const Json& object, const char* key) {
    static const Json kNull;
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
  }
  Status bad(const std::string& at, const std::string& what) const {
    return corrupt(where_, at + ": " + what);
  }
  Status unknown(const std::string& at, const std::string& type) const {
    return unsupported(where_, at + ": type \"" + printable(type, 64) + "\" is not implemented");
  }
  Result<std::string> text(const Json& object, const char* key, const std::string& at) const {
    const Json& value = member(object, key);
    if (!value.is_string()) return bad(at, std::string("\"") + key + "\" is not a string");
    return value.get<std::string>();
  }
  Result<bool> flag(const Json& object, const char* key, bool absent, const std::string& at) const {
    const Json& value = member(object, key);
    if (value.is_null()) return absent;
    if (!value.is_boolean()) return bad(at, std::string("\"") + key + "\" is not a boolean");
    return value.get<bool>();
  }
  Result<std::string> type_of(const Json& object, const std::string& at) const {
    if (!object.is_object()) return bad(at, "is not an object");
    return text(object, "type", at);
  }
  // Calls `read` on each element of object[key].
  template <typename Read>
  Status each(const Json& object, const char* key, const std::string& at, Read read) const {
    const Json& list = member(object, key);
    if (!list.is_array()) return bad(at, std::string("\"") + key + "\" is not an array");
    for (std::size_t i = 0; i < list.size(); ++i) {
      MOE_RETURN_IF_ERROR(read(list[i], at + "." + key + "[" + std::to_string(i) + "]"));
    }
    return Status::ok();
  }

  Status read_normalizer(const Json& node, const std::string& at) {
    if (node.is_null()) return Status::ok();
    MOE_ASSIGN_OR_RETURN(const std::string type, type_of(node, at));
    if (type == "Sequence") {
      return each(node, "normalizers", at, [this](const Json& item, const std::string& path) {
        return read_normalizer(item, path);
      });
    }
    if (type == "Prepend" || type == "Replace") return read_replacement(node, type, at);
    if (type != "NFC") return unknown(at, type);
    spec_.nfc = true;
    return Status::ok();
  }

  Status read_replacement(const Json& node, const std::string& type, const std::string& at) {
    if (spec_.replacements.size() == kMaxReplacements) {
      return unsupported(where_, at + ": more than " + std::to_string(kMaxReplacements) + " steps");
    }
    TextReplacement step;
    if (type == "Prepend") {
      MOE_ASSIGN_OR_RETURN(step.replacement, text(node, "prepend", at));
    } else {
      MOE_ASSIGN_OR_RETURN(step.pattern, literal_pattern(node, at));
      MOE_ASSIGN_OR_RETURN(step.replacement, text(node, "content", at));
      if (step.replacement.empty()) {
        return unsupported(where_, at + ": a Replace that removes text is not implemented");
      }
    }
    if (!step.pattern.empty()) {
      growth_ *= (step.replacement.size() + step.pattern.size() - 1) / step.pattern.size();
    }
    if (growth_ > kMaxGrowth || step.replacement.size() > kMaxGrowth) {
      return unsupported(where_, at + ": replacements that make a text more than " +
                                     std::to_string(kMaxGrowth) + " times as long");
    }
    if (!step.replacement.empty()) spec_.replacements.push_back(std::move(step));
    return Status::ok();
  }

  // The text of a pattern {"String": ...}.
  Result<std::string> literal_pattern(const Json& node, const std::string& at) const {
    const Json& pattern = member(node, "pattern");
    if (!pattern.is_object() || pattern.size() != 1) {
      return bad(at, "\"pattern\" is neither {\"Regex\": …} nor {\"String\": …}");
    }
    if (!pattern.contains("String")) {
      return unsupported(where_, at + ": a Replace with a regular expression is not implemented");
    }
    MOE_ASSIGN_OR_RETURN(std::string literal, text(pattern, "String", at));
    if (literal.empty()) return unsupported(where_, at + ": the pattern is empty");
    return literal;
  }

  // Characters are merged with byte fallback, and only they; anything else nobody publishes.
  Status check_symbols() const {
    if (spec_.symbols == SymbolKind::kBytes) {
      if (!byte_level_) {
        return unsupported(where_,
                           "pre_tokenizer: there is no ByteLevel step, and model.byte_fallback is "
                           "not set");
      }
      if (spec_.metaspace.has_value() || !spec_.replacements.empty()) {
        return unsupported(where_,
                           "ByteLevel with Metaspace, Prepend or Replace is not implemented");
      }
      return Status::ok();
    }
    if (byte_level_)
      return unsupported(where_, "model.byte_fallback with ByteLevel is not implemented");
    if (spec_.nfc) return unsupported(where_, "model.byte_fallback with NFC is not implemented");
    return Status::ok();
  }

  Status read_pre_tokenizer(const Json& node, const std::string& at) {
    if (node.is_null()) return Status::ok();
    MOE_ASSIGN_OR_RETURN(const std::string type, type_of(node, at));
    if (type == "Sequence") {
      return each(node, "pretokenizers", at, [this](const Json& item, const std::string& path) {
        return read_pre_tokenizer(item, path);
      });
    }
    if (byte_level_)
      return unsupported(where_, at + ": a step behind ByteLevel is not implemented");
    if (type == "ByteLevel") {
      byte_level_ = true;
      MOE_ASSIGN_OR_RETURN(spec_.add_prefix_space, flag(node, "add_prefix_space", true, at));
      MOE_ASSIGN_OR_RETURN(spec_.split_gpt2, flag(node, "use_regex", true, at));
      return Status::ok();
    }
    if (spec_.splits.size() == kMaxSplits) {
      return unsupported(where_, at + ": more than " + std::to_string(kMaxSplits) + " splits");
    }
    if (type == "Metaspace") return read_metaspace(node, at);
    if (type == "Split") return read_split(node, at);
    if (type == "Digits") return read_digits(node, at);
    return unknown(at, type);
  }

  Status read_metaspace(const Json& node, const std::string& at) {
    if (spec_.metaspace.has_value() || !spec_.splits.empty()) {
      return unsupported(where_, at + ": Metaspace behind another step is not implemented");
    }
    using Prepend = MetaspaceSpec::Prepend;
    MetaspaceSpec metaspace;
    MOE_ASSIGN_OR_RETURN(metaspace.replacement, text(node, "replacement", at));
    if (metaspace.replacement.empty() || metaspace.replacement.size() > 4) {
      return bad(at, "\"replacement\" is not one character");
    }
    MOE_ASSIGN_OR_RETURN(const bool prefix, flag(node, "add_prefix_space", true, at));
    metaspace.prepend = prefix ? Prepend::kAlways : Prepend::kNever;
    if (!member(node, "prepend_scheme").is_null()) {
      MOE_ASSIGN_OR_RETURN(const std::string scheme, text(node, "prepend_scheme", at));
      if (scheme != "always" && scheme != "first" && scheme != "never") {
        return unknown(at + ".prepend_scheme", scheme);
      }
      metaspace.prepend = scheme == "always"  ? Prepend::kAlways
                          : scheme == "first" ? Prepend::kFirst
                                              : Prepend::kNever;
    }
    MOE_ASSIGN_OR_RETURN(const bool split, flag(node, "split", true, at));
    if (split) {
      spec_.splits.push_back({.pattern = metaspace.replacement,
                              .is_regex = false,
                              .behavior = SplitBehavior::kMergedWithNext});
    }
    spec_.metaspace = std::move(metaspace);
    return Status::ok();
  }

  Status read_split(const Json& node, const std::string& at) {
    SplitSpec split;
    const Json& pattern = member(node, "pattern");
    if (!pattern.is_object() || pattern.size() != 1) {
      return bad(at, "\"pattern\" is neither {\"Regex\": …} nor {\"String\": …}");
    }
    split.is_regex = pattern.contains("Regex");
    MOE_ASSIGN_OR_RETURN(split.pattern, text(pattern, split.is_regex ? "Regex" : "String", at));
    if (split.pattern.empty()) return unsupported(where_, at + ": the pattern is empty");
    MOE_ASSIGN_OR_RETURN(split.invert, flag(node, "invert", false, at));
    MOE_ASSIGN_OR_RETURN(const std::string behavior, text(node, "behavior", at));
    if (behavior == "Isolated") {
      split.behavior = SplitBehavior::kIsolated;
    } else if (behavior == "Removed") {
      split.behavior = SplitBehavior::kRemoved;
    } else if (behavior == "MergedWithPrevious") {
      split.behavior = SplitBehavior::kMergedWithPrevious;
    } else if (behavior == "MergedWithNext") {
      split.behavior = SplitBehavior::kMergedWithNext;
    } else if (behavior == "Contiguous") {
      split.behavior = SplitBehavior::kContiguous;
    } else {
      return unsupported(where_,
                         at + ": behavior \"" + printable(behavior, 64) + "\" is not implemented");
    }
    spec_.splits.push_back(std::move(split));
    return Status::ok();
  }

  Status read_digits(const Json& node, const std::string& at) {
    SplitSpec split;
    // The reference asks Rust's char::is_numeric here, whose tables know a few more digits
    // (Unicode 17) than those behind \p{N}.
    split.pattern = "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]";
    MOE_ASSIGN_OR_RETURN(const bool individual, flag(node, "individual_digits", false, at));
    split.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
    spec_.splits.push_back(std::move(split));
    return Status::ok();
  }

  // Of what a post-processor puts around a text the part before it is kept: prompts that no
  // template of chats has written begin with it.
  Status read_post_processor(const Json& node, const std::string& at) {
    if (node.is_null()) return Status::ok();
    MOE_ASSIGN_OR_RETURN(const std::string type, type_of(node, at));
    if (type == "ByteLevel") return Status::ok();
    if (type == "Sequence") {
      return each(node, "processors", at, [this](const Json& item, const std::string& path) {
        return read_post_processor(item, path);
      });
    }
    if (type != "TemplateProcessing") return unknown(at, type);
    const Json& single = member(node, "single");
    if (!single.is_array()) return bad(at, "\"single\" is not an array");
    const auto is_text = [](const Json& part) {
      return part.is_object() && part.contains("Sequence");
    };
    if (std::count_if(single.begin(), single.end(), is_text) != 1) {
      return unsupported(where_, at + ": a template that does not hold the text once");
    }
    const auto place = std::find_if(single.begin(), single.end(), is_text);
    std::vector<std::int32_t> before;
    for (auto part = single.begin(); part != place; ++part) {
      MOE_RETURN_IF_ERROR(add_template_token(*part, member(node, "special_tokens"), at, before));
    }
    if (spec_.begin_of_text.has_value()) {  // a later template stands around the earlier one
      before.insert(before.end(), spec_.begin_of_text->begin(), spec_.begin_of_text->end());
    }
    spec_.begin_of_text = std::move(before);
    return Status::ok();
  }

  // Appends the ids of {"SpecialToken": {"id": NAME}}, which special_tokens[NAME] lists.
  Status add_template_token(const Json& part, const Json& tokens, const std::string& at,
                            std::vector<std::int32_t>& ids) const {
    const Json& token = member(part, "SpecialToken");
    if (!member(token, "id").is_string()) {
      return bad(at, "a part of \"single\" is neither text nor token");
    }
    const auto name = member(token, "id").get<std::string>();
    const Json& list = member(member(tokens, name.c_str()), "ids");
    if (!list.is_array()) {
      return bad(at, "\"special_tokens\" has no ids for \"" + printable(name, 64) + "\"");
    }
    for (const Json& id : list) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kMostId) {
        return bad(at, "\"special_tokens\" has an id that is none");
      }
      ids.push_back(id.get<std::int32_t>());
    }
    return Status::ok();
  }

  // A sequence of one step is that step.
  static const Json& only_step(const Json& node) {
    if (!node.is_object() || member(node, "type") != "Sequence") return node;
    const Json& list = member(node, "decoders");
    return list.is_array() && list.size() == 1 ? list[0] : node;
  }

  Status read_decoder(const Json& node, const std::string& at) {
    if (spec_.symbols == SymbolKind::kCharacters) return read_text_decoder(node, at);
    const Json& step = only_step(node);
    MOE_ASSIGN_OR_RETURN(const std::string type, type_of(step, at));
    return member(step, "type") == "ByteLevel" ? Status::ok() : unknown(at, type);
  }

  // [Replace {mark -> " "}, ByteFallback, Fuse] and perhaps a Strip of one space at the begin.
  Status read_text_decoder(const Json& node, const std::string& at) {
    static constexpr std::array<std::string_view, 4> kSteps = {"Replace", "ByteFallback", "Fuse",
                                                               "Strip"};
    MOE_ASSIGN_OR_RETURN(const std::string type, type_of(node, at));
    if (type != "Sequence") return unknown(at, type);
    const Json& list = member(node, "decoders");
    if (!list.is_array()) return bad(at, "\"decoders\" is not an array");
    for (std::size_t i = 0; i < std::max<std::size_t>(list.size(), 3); ++i) {
      const std::string path = at + ".decoders[" + std::to_string(i) + "]";
      if (i >= list.size()) {
        return unsupported(where_, path + ": a decoder without " + std::string(kSteps[i]));
      }
      MOE_ASSIGN_OR_RETURN(const std::string step, type_of(list[i], path));
      if (i >= kSteps.size() || step != kSteps[i]) return unknown(path, step);
    }
    const std::string first = at + ".decoders[0]";
    MOE_ASSIGN_OR_RETURN(spec_.space_mark, literal_pattern(list[0], first));
    MOE_ASSIGN_OR_RETURN(const std::string content, text(list[0], "content", first));
    if (content != " ") {
      return unsupported(where_, first + ": a replacement other than a space is not implemented");
    }
    spec_.strip_first_space = list.size() == kSteps.size();
    return spec_.strip_first_space ? check_strip(list[3], at + ".decoders[3]") : Status::ok();
  }

  Status check_strip(const Json& node, const std::string& at) const {
    MOE_ASSIGN_OR_RETURN(const std::string content, text(node, "content", at));
    if (content == " " && member(node, "start") == 1 && member(node, "stop") == 0) {
      return Status::ok();
    }
    return unsupported(where_, at + ": only one space at the begin can be stripped");
  }

  Status read_added_tokens(const Json& list) {
    if (list.is_null()) return Status::ok();
    if (!list.is_array()) return corrupt(where_, "\"added_tokens\" is not an array");
    spec_.added_tokens.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string at = "added_tokens[" + std::to_string(i) + "]";
      const Json& node = list[i];
      if (!node.is_object()) return bad(at, "is not an object");
      AddedTokenSpec token;
      MOE_ASSIGN_OR_RETURN(token.content, text(node, "content", at));
      const Json& id = member(node, "id");
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kMostId) {
        return bad(at, "\"id\" is not an integer from 0 that fits 32 bits");
      }
      token.id = static_cast<std::int32_t>(id.get<std::uint64_t>());
      MOE_ASSIGN_OR_RETURN(token.special, flag(node, "special", false, at));
      MOE_ASSIGN_OR_RETURN(token.normalized, flag(node, "normalized", !token.special, at));
      MOE_ASSIGN_OR_RETURN(token.lstrip, flag(node, "lstrip", false, at));
      MOE_ASSIGN_OR_RETURN(token.rstrip, flag(node, "rstrip", false, at));
      MOE_ASSIGN_OR_RETURN(token.single_word, flag(node, "single_word", false, at));
      spec_.added_tokens.push_back(std::move(token));
    }
    return Status::ok();
  }

  Where where_;
  TokenizerSpec& spec_;
  bool byte_level_ = false;
  std::size_t growth_ = 1;  // at most, by the replacements so far
};

}  // namespace

Status read_tokenizer_model(const nlohmann::json& root, const std::string& file,
                            TokenizerSpec& spec) {
  return Interpreter(file, spec).read_model(root);
}

Status read_tokenizer_settings(const nlohmann::json& root, const std::string& file,
                               TokenizerSpec& spec) {
  return Interpreter(file, spec).run(root);
}

}  // namespace moepack
