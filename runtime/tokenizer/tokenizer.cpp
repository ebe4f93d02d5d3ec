#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <limits>
#include <optional>

#include "formats/base/utf8.h"
#include "formats/config/companion_files.h"
#include "formats/config/tokenizer_json.h"
#include "runtime/tokenizer/begin_of_text.h"
#include "runtime/tokenizer/tokenizer_added.h"
#include "runtime/tokenizer/tokenizer_bpe.h"
#include "runtime/tokenizer/tokenizer_normalizer.h"
#include "runtime/tokenizer/tokenizer_split.h"
#include "runtime/tokenizer/tokenizer_vocab.h"

namespace moepack {
namespace {

constexpr std::size_t kMaxTextBytes = std::numeric_limits<std::int32_t>::max();

// GPT-2's own pattern (Radford et al. 2019), which ByteLevel applies when use_regex is set.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Remembers where the ids of a word stand in the output of one call. Its size is bounded: each slot
// has one word, and the last one stays.
class WordCache {
 public:
  explicit WordCache(std::size_t text_bytes)
      : slots_(std::clamp<std::size_t>(std::bit_ceil(text_bytes / 16 + 1), 16, 1 << 15)) {}

  // Appends the ids of `word` if it is remembered.
  bool append(std::string_view word, std::vector<std::int32_t>& ids) {
    if (word.size() > kMaxWordBytes) return false;
    const Slot& slot = slot_of(word);
    if (slot.word != word) return false;
    for (std::uint32_t i = 0; i < slot.count; ++i) ids.push_back(ids[slot.first + i]);
    return true;
  }
  // The ids from `first` on are those of `word`, whose bytes must outlive the cache.
  void remember(std::string_view word, std::size_t first, std::size_t count) {
    if (word.size() > kMaxWordBytes) return;
    slot_of(word) = {.word = word, .first = first, .count = static_cast<std::uint32_t>(count)};
  }

 private:
  static constexpr std::size_t kMaxWordBytes = 64;
  struct Slot {
    std::string_view word;
    std::size_t first = 0;
    std::uint32_t count = 0;
  };
  Slot& slot_of(std::string_view word) {
    return slots_[std::hash<std::string_view>()(word) & (slots_.size() - 1)];
  }
  std::vector<Slot> slots_;
};

}  // namespace

struct Tokenizer::Impl {
  Vocabulary vocab;
  std::unique_ptr<BpeModel> bpe;
  Normalizer normalizer;
  std::optional<MetaspaceSpec> metaspace;
  bool strip_first_space = false;
  bool add_prefix_space = false;
  AddedTokenMatcher raw_tokens;         // looked for before normalization
  AddedTokenMatcher normalized_tokens;  // and after it
  std::vector<Splitter> splits;
  std::vector<std::int32_t> begin_of_text;
  std::size_t prefix_stage = 0;  // splits before the prefix space is added

  class Encoder;
  Status build(const TokenizerSpec& spec, const Where& where);
  Status add_token(const AddedTokenSpec& token, const Where& where);
};

// One call of encode().
class Tokenizer::Impl::Encoder {
 public:
  Encoder(const Impl& tokenizer, std::string_view text, std::span<const LiteralRange> literal)
      : tokenizer_(tokenizer), whole_(text), literal_(literal), cache_(text.size()) {
    ids_.reserve(text.size() / 4 + 16);
    for (std::size_t stage = 0; stage < tokenizer.splits.size(); ++stage) {
      sinks_.emplace_back(
          [this, stage](std::string_view piece) { return add_piece(piece, stage + 1); });
    }
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  Status add_text() {
    const auto sink = [this](std::int32_t id, std::string_view part) {
      return id == AddedTokenMatcher::kText ? add_raw(part) : add_id(id);
    };
    return tokenizer_.raw_tokens.find(whole_, sink, literal_);
  }
  std::vector<std::int32_t> take() { return std::move(ids_); }

 private:
  Status add_id(std::int32_t id) {
    ids_.push_back(id);
    return Status::ok();
  }

  // The literal ranges within `part` of the whole text, counted from its begin.
  std::vector<LiteralRange> literal_within(std::string_view part) const {
    std::vector<LiteralRange> within;
    const auto begin = static_cast<std::size_t>(part.data() - whole_.data());
    for (const LiteralRange& range : literal_) {
      if (range.end <= begin || range.begin >= begin + part.size()) continue;
      within.push_back(
          {std::max(range.begin, begin) - begin, std::min(range.end - begin, part.size())});
    }
    return within;
  }

  Status add_raw(std::string_view text) {
    const std::string_view given = text;
    std::vector<LiteralRange> literal;
    if (!tokenizer_.normalized_tokens.empty()) literal = literal_within(text);
    if (tokenizer_.normalizer.changes_text()) {
      owned_.emplace_back();
      text = tokenizer_.normalizer.normalize(text, owned_.back());
      if (text.data() == given.data()) owned_.pop_back();
    }
    // Where normalization has changed a text that has literal ranges, they cannot be found again:
    // all of it is literal then.
    if (!literal.empty() && text.data() != given.data()) literal = {{0, text.size()}};
    const bool is_first = given.data() == whole_.data();
    const auto sink = [&](std::int32_t id, std::string_view part) {
      if (id != AddedTokenMatcher::kText) return add_id(id);
      return add_stretch(part, is_first && part.data() == text.data());
    };
    return tokenizer_.normalized_tokens.find(text, sink, literal);
  }

  // Adds text between added tokens; `is_first`: it begins the whole text.
  Status add_stretch(std::string_view text, bool is_first) {
    if (!tokenizer_.metaspace.has_value()) return add_piece(text, 0);
    using Prepend = MetaspaceSpec::Prepend;
    const MetaspaceSpec& metaspace = *tokenizer_.metaspace;
    std::string& marked = owned_.emplace_back(replace_text(text, " ", metaspace.replacement));
    const bool wanted =
        metaspace.prepend == Prepend::kAlways || (metaspace.prepend == Prepend::kFirst && is_first);
    if (wanted && !marked.starts_with(metaspace.replacement)) {
      marked.insert(0, metaspace.replacement);
    }
    return add_piece(marked, 0);
  }

  // Adds a piece to which `stage` splits have been applied.
  Status add_piece(std::string_view piece, std::size_t stage) {
    if (stage == tokenizer_.prefix_stage && tokenizer_.add_prefix_space && piece[0] != ' ') {
      piece = owned_.emplace_back(" " + std::string(piece));
    }
    if (stage == tokenizer_.splits.size()) return add_word(piece);
    return tokenizer_.splits[stage].split(piece, scratch_, sinks_[stage]);
  }

  Status add_word(std::string_view word) {
    if (cache_.append(word, ids_)) return Status::ok();
    const std::size_t first = ids_.size();
    MOE_RETURN_IF_ERROR(tokenizer_.bpe->encode(word, ids_));
    cache_.remember(word, first, ids_.size() - first);
    return Status::ok();
  }

  const Impl& tokenizer_;
  std::string_view whole_;
  std::span<const LiteralRange> literal_;
  std::vector<std::int32_t> ids_;
  WordCache cache_;
  SplitScratch scratch_;
  std::deque<std::string> owned_;  // text made here, kept for the cache's sake
  std::vector<Splitter::Sink> sinks_;
};

Status Tokenizer::Impl::add_token(const AddedTokenSpec& token, const Where& where) {
  if (token.content.empty()) return Status::ok();  // stands for its id, never found in text
  if (!token.normalized) return raw_tokens.add(token.content, token, where);
  std::string storage;
  return normalized_tokens.add(normalizer.normalize(token.content, storage), token, where);
}

Status Tokenizer::Impl::build(const TokenizerSpec& spec, const Where& where) {
  const TokenIndex index(spec);
  MOE_ASSIGN_OR_RETURN(vocab, Vocabulary::build(spec, index, where));
  MOE_ASSIGN_OR_RETURN(BpeModel model, BpeModel::build(spec, index, vocab, where));
  bpe = std::make_unique<BpeModel>(std::move(model));
  normalizer = Normalizer(spec);
  metaspace = spec.metaspace;
  strip_first_space = spec.strip_first_space;
  add_prefix_space = spec.add_prefix_space;
  for (const AddedTokenSpec& token : spec.added_tokens) {
    MOE_RETURN_IF_ERROR(add_token(token, where));
  }
  for (const SplitSpec& split : spec.splits) {
    MOE_ASSIGN_OR_RETURN(Splitter splitter, Splitter::compile(split, where));
    splits.push_back(std::move(splitter));
  }
  prefix_stage = splits.size();
  if (spec.split_gpt2) {
    MOE_ASSIGN_OR_RETURN(Splitter splitter,
                         Splitter::compile(SplitSpec{.pattern = std::string(kGpt2Pattern)}, where));
    splits.push_back(std::move(splitter));
  }
  return Status::ok();
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const TokenizerSpec spec, parse_tokenizer_json(json, file));
  return make(spec, file, {});
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& tokenizer_json) {
  MOE_ASSIGN_OR_RETURN(const TokenizerSpec spec, load_tokenizer_json(tokenizer_json));
  return make(spec, tokenizer_json.string(), tokenizer_json.parent_path() / kTokenizerConfigName);
}

Result<Tokenizer> Tokenizer::make(const TokenizerSpec& spec, const std::string& file,
                                  const std::filesystem::path& config) {
  auto impl = std::make_unique<Impl>();
  const Where where{.file = file};
  MOE_RETURN_IF_ERROR(impl->build(spec, where));
  MOE_ASSIGN_OR_RETURN(impl->begin_of_text, begin_of_text_ids(spec, where, config));
  return Tokenizer(std::move(impl));
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text) const {
  return encode(text, {});
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view text,
                                                    std::span<const LiteralRange> literal) const {
  if (text.size() > kMaxTextBytes) return invalid_argument("the text is longer than 2 GiB");
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    return corrupt(Where{.file = "text", .tensor = {}, .offset = invalid}, "not valid UTF-8",
                   "convert the text to UTF-8");
  }
  Impl::Encoder encoder(*impl_, text, literal);
  MOE_RETURN_IF_ERROR(encoder.add_text());
  return encoder.take();
}

std::span<const std::int32_t> Tokenizer::begin_of_text() const { return impl_->begin_of_text; }

std::size_t Tokenizer::begin_text(std::vector<std::int32_t>& ids) const {
  const std::vector<std::int32_t>& begin = impl_->begin_of_text;
  const bool is_there =
      ids.size() >= begin.size() && std::equal(begin.begin(), begin.end(), ids.begin());
  if (is_there) return 0;
  ids.insert(ids.begin(), begin.begin(), begin.end());
  return begin.size();
}

std::int32_t Tokenizer::size() const { return impl_->vocab.size(); }

std::string_view Tokenizer::bytes(std::int32_t id) const { return impl_->vocab.bytes(id); }

bool Tokenizer::is_special(std::int32_t id) const { return impl_->vocab.is_special(id); }

std::int32_t Tokenizer::added_token(std::string_view content) const {
  return impl_->vocab.added_token(content);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string all;
  for (const std::int32_t id : ids) {
    if (!skip_special || !is_special(id)) all += bytes(id);
  }
  std::string text;
  append_lossy_utf8(all, true, text);
  if (impl_->strip_first_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string StreamDecoder::push(std::int32_t id) {
  pending_ += tokenizer_->bytes(id);
  std::string text;
  pending_.erase(0, append_lossy_utf8(pending_, false, text));
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_lossy_utf8(pending_, true, text);
  pending_.clear();
  return text;
}

}  // namespace moepack
