#include "formats/config/tokenizer_json.h"

#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/config/companion_files.h"

namespace moepack {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxSplits = 16;
constexpr std::uint64_t kMaxId = std::numeric_limits<std::int32_t>::max() - 1;

// Streams model.vocab and model.merges, which are the bulk of the file, into the spec, and keeps
// the rest, which is small, as a tree.
class TokenizerVisitor final : public JsonVisitor {
 public:
  TokenizerVisitor(const std::string& file, TokenizerSpec& spec) : file_(file), spec_(spec) {}

  Json& root() { return root_; }
  bool has_vocab() const { return has_vocab_; }
  bool has_merges() const { return has_merges_; }

  Status on_null() override { return scalar(nullptr, "null"); }
  Status on_bool(bool value) override { return scalar(value, "a boolean"); }
  Status on_number(double value) override { return scalar(value, "a number"); }
  Status on_unsigned(std::uint64_t value) override {
    if (state_ == State::kVocab) return add_token(value);
    return scalar(value, "a number");
  }
  Status on_string(std::string& value) override {
    if (state_ == State::kMerges) return add_merge_line(value);
    if (state_ == State::kMergePair) {
      if (pair_size_ < 2) (pair_size_ == 0 ? pair_.first : pair_.second) = std::move(value);
      ++pair_size_;
      return Status::ok();
    }
    return scalar(std::move(value), "a string");
  }

  Status begin_object() override {
    if (state_ == State::kSkip) return skip_in();
    if (state_ != State::kTree) return wrong("an object");
    if (entering("vocab")) {
      has_vocab_ = true;
      state_ = State::kVocab;
      return Status::ok();
    }
    if (entering("merges")) return skip_in();
    return open(Json::object());
  }
  Status on_key(std::string& key) override {
    if (state_ != State::kSkip) key_ = std::move(key);
    return Status::ok();
  }
  Status end_object() override {
    if (state_ == State::kSkip) return skip_out();
    if (state_ == State::kVocab) {
      state_ = State::kTree;
      return Status::ok();
    }
    return close();
  }

  Status begin_array() override {
    if (state_ == State::kSkip) return skip_in();
    if (state_ == State::kMerges) {
      state_ = State::kMergePair;
      pair_size_ = 0;
      return Status::ok();
    }
    if (state_ != State::kTree) return wrong("an array");
    if (entering("merges")) {
      has_merges_ = true;
      state_ = State::kMerges;
      return Status::ok();
    }
    if (entering("vocab")) return skip_in();
    return open(Json::array());
  }
  Status end_array() override {
    if (state_ == State::kSkip) return skip_out();
    if (state_ == State::kMergePair) {
      if (pair_size_ != 2) return bad_merge();
      spec_.merges.push_back(std::move(pair_));
      state_ = State::kMerges;
      return Status::ok();
    }
    if (state_ == State::kMerges) {
      state_ = State::kTree;
      return Status::ok();
    }
    return close();
  }

 private:
  enum class State { kTree, kVocab, kMerges, kMergePair, kSkip };

  Status error(std::string_view what) const {
    return corrupt(Where{.file = file_, .tensor = {}, .offset = position()}, what);
  }
  Status wrong(const std::string& found) const {
    if (state_ == State::kVocab) {
      return error("model.vocab: the id of \"" + printable(key_, 64) + "\" is " + found +
                   ", not an integer from 0");
    }
    return bad_merge();
  }
  Status bad_merge() const {
    return error("model.merges: entry " + std::to_string(spec_.merges.size()) +
                 " is neither \"a b\" nor [\"a\", \"b\"]");
  }

  // True when the value that begins now is model.<name>.
  bool entering(std::string_view name) const {
    return stack_.size() == 2 && in_model_ && key_ == name;
  }

  Status add_token(std::uint64_t id) {
    if (id > kMaxId) {
      return error("model.vocab: id " + std::to_string(id) + " of \"" + printable(key_, 64) +
                   "\" does not fit 32 bits");
    }
    spec_.vocab.emplace_back(std::move(key_), static_cast<std::int32_t>(id));
    return Status::ok();
  }

  Status add_merge_line(const std::string& line) {
    if (line.starts_with("#version")) return Status::ok();  // a header in old files, not a pair
    const auto space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      return bad_merge();
    }
    spec_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    return Status::ok();
  }

  Status skip_in() {
    state_ = State::kSkip;
    ++skip_depth_;
    return Status::ok();
  }
  Status skip_out() {
    if (--skip_depth_ == 0) state_ = State::kTree;
    return Status::ok();
  }

  Json* place(Json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }
  Status scalar(Json value, const char* kind) {
    if (state_ == State::kSkip) return Status::ok();
    if (state_ != State::kTree) return wrong(kind);
    place(std::move(value));
    return Status::ok();
  }
  Status open(Json value) {
    const bool model = stack_.size() == 1 && stack_.back()->is_object() && key_ == "model";
    stack_.push_back(place(std::move(value)));
    in_model_ = in_model_ || model;
    return Status::ok();
  }
  Status close() {
    stack_.pop_back();
    if (stack_.size() == 1) in_model_ = false;
    return Status::ok();
  }

  const std::string& file_;
  TokenizerSpec& spec_;
  Json root_;
  std::vector<Json*> stack_;
  std::string key_;
  bool in_model_ = false;
  bool has_vocab_ = false;
  bool has_merges_ = false;
  State state_ = State::kTree;
  int skip_depth_ = 0;
  std::pair<std::string, std::string> pair_;
  std::size_t pair_size_ = 0;
};

// Reads the tree part. `at` in messages is the path of keys.
class Interpreter {
 public:
  Interpreter(const std::string& file, TokenizerSpec& spec) : where_{.file = file}, spec_(spec) {}

  Status run(const Json& root) {
    MOE_RETURN_IF_ERROR(read_normalizer(member(root, "normalizer"), "normalizer"));
    MOE_RETURN_IF_ERROR(read_pre_tokenizer(member(root, "pre_tokenizer"), "pre_tokenizer"));
    if (!byte_level_) return unsupported(where_, "pre_tokenizer: there is no ByteLevel step");
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
    if (fallback) return unsupported(where_, "model.byte_fallback is not implemented");
    MOE_ASSIGN_OR_RETURN(spec_.ignore_merges, flag(model, "ignore_merges", false, "model"));
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
    if (type != "NFC") return unknown(at, type);
    spec_.nfc = true;
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
    if (type == "Split") return read_split(node, at);
    if (type == "Digits") return read_digits(node, at);
    return unknown(at, type);
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

  // Those that only move offsets are fine; those that add tokens would change the ids.
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
    if (single.size() != 1 || !single[0].is_object() || !single[0].contains("Sequence")) {
      return unsupported(where_, at + ": a template that adds tokens is not implemented");
    }
    return Status::ok();
  }

  Status read_decoder(const Json& node, const std::string& at) {
    MOE_ASSIGN_OR_RETURN(const std::string type, type_of(node, at));
    if (type == "Sequence") {
      const Json& list = member(node, "decoders");
      if (list.is_array() && list.size() == 1) return read_decoder(list[0], at + ".decoders[0]");
    }
    return type == "ByteLevel" ? Status::ok() : unknown(at, type);
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
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kMaxId) {
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
};

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& file) {
  TokenizerSpec spec;
  TokenizerVisitor visitor(file, spec);
  MOE_RETURN_IF_ERROR(visit_json(json, Where{.file = file}, visitor));
  const Where where{.file = file};
  if (!visitor.root().is_object()) return corrupt(where, "is not a JSON object");
  Interpreter interpreter(file, spec);
  MOE_RETURN_IF_ERROR(interpreter.read_model(visitor.root()));
  if (!visitor.has_vocab()) return corrupt(where, "model.vocab is missing or not an object");
  if (!visitor.has_merges()) return corrupt(where, "model.merges is missing or not an array");
  MOE_RETURN_IF_ERROR(interpreter.run(visitor.root()));
  return spec;
}

Result<TokenizerSpec> load_tokenizer_json(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const std::string json,
                       read_text_file(path, companion_max_bytes(kTokenizerName)));
  return parse_tokenizer_json(json, path.string());
}

}  // namespace moepack
