#include "formats/config/tokenizer_json.h"

#include <limits>

#include <nlohmann/json.hpp>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/config/companion_files.h"
#include "formats/config/tokenizer_settings.h"

namespace moepack {
namespace {

using Json = nlohmann::json;

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

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& file) {
  TokenizerSpec spec;
  TokenizerVisitor visitor(file, spec);
  MOE_RETURN_IF_ERROR(visit_json(json, Where{.file = file}, visitor));
  const Where where{.file = file};
  if (!visitor.root().is_object()) return corrupt(where, "is not a JSON object");
  MOE_RETURN_IF_ERROR(read_tokenizer_model(visitor.root(), file, spec));
  if (!visitor.has_vocab()) return corrupt(where, "model.vocab is missing or not an object");
  if (!visitor.has_merges()) return corrupt(where, "model.merges is missing or not an array");
  MOE_RETURN_IF_ERROR(read_tokenizer_settings(visitor.root(), file, spec));
  return spec;
}

Result<TokenizerSpec> load_tokenizer_json(const std::filesystem::path& path) {
  MOE_ASSIGN_OR_RETURN(const std::string json,
                       read_text_file(path, companion_max_bytes(kTokenizerName)));
  return parse_tokenizer_json(json, path.string());
}

}  // namespace moepack
