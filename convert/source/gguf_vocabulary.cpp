#include "convert/source/gguf_vocabulary.h"

#include <algorithm>

#include "formats/base/utf8.h"

namespace moepack {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTokenType = "tokenizer.ggml.token_type";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::uint64_t kLengthBytes = 8;  // before every string of an array

std::string element(std::string_view key, std::size_t index) {
  return "key " + std::string(key) + ", element " + std::to_string(index);
}

std::string quoted(std::string_view text) { return "\"" + printable(text, 64) + "\""; }

// The key if it is an array of strings of a size that a tokenizer can have.
Result<const GgufEntry*> find_strings(const GgufMetadata& metadata, std::string_view key,
                                      const std::string& file) {
  const GgufEntry* entry = metadata.find(key);
  if (entry == nullptr) {
    return not_found(Where{.file = file}, "key " + std::string(key) + " is missing",
                     "the tokenizer cannot be rebuilt without it");
  }
  const Where where{.file = file, .offset = entry->offset};
  if (entry->type != GgufValueType::kArray || entry->element != GgufValueType::kString) {
    return corrupt(where, "key " + std::string(key) + " is no array of strings",
                   "make the file again");
  }
  if (entry->bytes > kMaxTokenizerKeyBytes) {
    return unsupported(where, "key " + std::string(key) + " has " + std::to_string(entry->bytes) +
                                  " bytes, at most " + std::to_string(kMaxTokenizerKeyBytes) +
                                  " are handled");
  }
  return entry;
}

bool is_placeholder(std::string_view text, std::size_t id) {
  return text == "[PAD" + std::to_string(id) + "]";
}

// nullopt: no kind of token that byte-level BPE has.
std::optional<GgufTokenKind> kind_of(std::int64_t type, std::string_view text, std::size_t id) {
  constexpr std::int64_t kNormal = 1;
  constexpr std::int64_t kControl = 3;
  constexpr std::int64_t kUserDefined = 4;
  constexpr std::int64_t kUnused = 5;
  if (type == kNormal) return GgufTokenKind::kNormal;
  if (type == kControl) return GgufTokenKind::kControl;
  // Older converters called the placeholders user-defined.
  if (type == kUserDefined || type == kUnused) {
    if (is_placeholder(text, id)) return GgufTokenKind::kAbsent;
    return type == kUnused ? GgufTokenKind::kNormal : GgufTokenKind::kUserDefined;
  }
  return std::nullopt;
}

}  // namespace

Status GgufVocabulary::read_texts(const GgufMetadata& metadata, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, find_strings(metadata, kTokens, file));
  if (entry->count == 0) {
    return corrupt(Where{.file = file, .offset = entry->offset},
                   "key " + std::string(kTokens) + " has no elements", "make the file again");
  }
  pool_.reserve(entry->bytes - kLengthBytes * entry->count);
  begins_.reserve(entry->count + 1);
  begins_.push_back(0);
  return metadata.for_each_string(kTokens, [&](const std::string& text) {
    const std::size_t id = begins_.size() - 1;
    const std::size_t invalid = find_invalid_utf8(text);
    if (invalid != std::string_view::npos) {
      const std::uint64_t offset = entry->offset + kLengthBytes * (id + 1) + pool_.size() + invalid;
      return corrupt(Where{.file = file, .offset = offset}, element(kTokens, id) + " is not UTF-8",
                     "make the file again");
    }
    pool_ += text;
    begins_.push_back(static_cast<std::uint32_t>(pool_.size()));
    return Status::ok();
  });
}

Status GgufVocabulary::read_kinds(const GgufMetadata& metadata, const std::string& file) {
  const std::size_t count = begins_.size() - 1;
  const GgufEntry* entry = metadata.find(kTokenType);
  if (entry != nullptr && entry->count != count) {
    return corrupt(Where{.file = file, .offset = entry->offset},
                   "key " + std::string(kTokenType) + " has " + std::to_string(entry->count) +
                       " elements for " + std::to_string(count) + " tokens",
                   "make the file again");
  }
  MOE_ASSIGN_OR_RETURN(const std::vector<std::int64_t> types, metadata.numbers(kTokenType));
  kinds_.resize(count);
  in_model_.resize(count);
  for (std::size_t id = 0; id < count; ++id) {
    const std::string_view token = text(static_cast<std::uint32_t>(id));
    const auto kind = kind_of(types[id], token, id);
    if (!kind.has_value()) {
      const Where where{.file = file, .offset = entry->offset + id * (entry->bytes / count)};
      const std::string what = element(kTokenType, id) + ": token " + quoted(token) + " has type " +
                               std::to_string(types[id]);
      if (types[id] == 2 || types[id] == 6) {
        return unsupported(where, what + (types[id] == 2 ? " (unknown)" : " (byte)") +
                                      ", which byte-level BPE does not have");
      }
      return corrupt(where, what + "; the format's go from 1 to 6", "make the file again");
    }
    kinds_[id] = *kind;
    in_model_[id] = *kind == GgufTokenKind::kNormal;
  }
  return Status::ok();
}

Status GgufVocabulary::index_texts(const GgufEntry& entry, const std::string& file) {
  by_text_.reserve(kinds_.size());
  for (std::uint32_t id = 0; id < size(); ++id) {
    if (kinds_[id] != GgufTokenKind::kAbsent) by_text_.push_back(id);
  }
  std::sort(by_text_.begin(), by_text_.end(), [this](std::uint32_t a, std::uint32_t b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });
  const auto twice =
      std::adjacent_find(by_text_.begin(), by_text_.end(),
                         [this](std::uint32_t a, std::uint32_t b) { return text(a) == text(b); });
  if (twice == by_text_.end()) return Status::ok();
  const std::uint32_t second = *std::next(twice);
  const std::uint64_t offset = entry.offset + kLengthBytes * second + begins_[second];
  return corrupt(Where{.file = file, .offset = offset},
                 element(kTokens, second) + " is " + quoted(text(second)) + ", as is element " +
                     std::to_string(*twice),
                 "make the file again");
}

std::optional<std::uint32_t> GgufVocabulary::find(std::string_view wanted) const {
  const auto at =
      std::lower_bound(by_text_.begin(), by_text_.end(), wanted,
                       [this](std::uint32_t id, std::string_view key) { return text(id) < key; });
  if (at == by_text_.end() || text(*at) != wanted) return std::nullopt;
  return *at;
}

Result<GgufMerge> GgufVocabulary::parse_merge(std::string_view line, std::string& joined,
                                              const Where& where, std::size_t rank) {
  const std::size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != std::string_view::npos) {
    return corrupt(where, element(kMerges, rank) + " is " + quoted(line) + ", not \"a b\"",
                   "make the file again");
  }
  joined.assign(line.substr(0, space)).append(line.substr(space + 1));
  const std::string_view texts[] = {line.substr(0, space), line.substr(space + 1), joined};
  std::uint32_t ids[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const auto id = find(texts[i]);
    if (!id.has_value()) {
      return corrupt(where,
                     element(kMerges, rank) + ", " + quoted(line) + ", needs the token " +
                         quoted(texts[i]) + ", which is not in " + std::string(kTokens),
                     "make the file again");
    }
    ids[i] = *id;
    in_model_[*id] = true;
  }
  return GgufMerge{ids[0], ids[1]};
}

Status GgufVocabulary::read_merges(const GgufMetadata& metadata, const std::string& file) {
  MOE_ASSIGN_OR_RETURN(const GgufEntry* entry, find_strings(metadata, kMerges, file));
  merges_.reserve(entry->count);
  std::uint64_t offset = entry->offset;
  std::string joined;
  return metadata.for_each_string(kMerges, [&](const std::string& line) {
    const Where where{.file = file, .offset = offset};
    offset += kLengthBytes + line.size();
    MOE_ASSIGN_OR_RETURN(const GgufMerge merge, parse_merge(line, joined, where, merges_.size()));
    merges_.push_back(merge);
    return Status::ok();
  });
}

Result<GgufVocabulary> GgufVocabulary::read(const GgufMetadata& metadata, const std::string& file) {
  GgufVocabulary vocabulary;
  MOE_RETURN_IF_ERROR(vocabulary.read_texts(metadata, file));
  MOE_RETURN_IF_ERROR(vocabulary.read_kinds(metadata, file));
  MOE_RETURN_IF_ERROR(vocabulary.index_texts(*metadata.find(kTokens), file));
  MOE_RETURN_IF_ERROR(vocabulary.read_merges(metadata, file));
  return vocabulary;
}

}  // namespace moepack
