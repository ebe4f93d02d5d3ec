#include "runtime/tokenizer/tokenizer_vocab.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "formats/config/byte_alphabet.h"

namespace moepack {
namespace {

// Real files have few holes (ids of reserved tokens). A file with far more ids per token than this
// was made to exhaust memory.
constexpr std::size_t kIdsPerToken = 16;
constexpr std::size_t kIdsSlack = 4096;

// What stands for one id.
struct Source {
  std::string_view text;
  bool in_model = false;
  bool added = false;
  bool special = false;
};

Status check_sizes(const TokenizerSpec& spec, std::int32_t highest, const Where& where) {
  const std::size_t tokens = spec.vocab.size() + spec.added_tokens.size();
  if (tokens == 0) return corrupt(where, "there are no tokens");
  if (static_cast<std::size_t>(highest) >= tokens * kIdsPerToken + kIdsSlack) {
    return corrupt(where, "id " + std::to_string(highest) +
                              " is far beyond the number of tokens, " + std::to_string(tokens));
  }
  std::size_t bytes = 0;
  for (const auto& [text, id] : spec.vocab) bytes += text.size();
  for (const AddedTokenSpec& token : spec.added_tokens) bytes += token.content.size();
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    return unsupported(where, "more than 4 GiB of token text");
  }
  return Status::ok();
}

Status collect(const TokenizerSpec& spec, const TokenIndex& index, const Where& where,
               std::vector<Source>& sources) {
  const auto clash = [&](std::int32_t id, std::string_view a, std::string_view b) {
    return corrupt(where, "id " + std::to_string(id) + " stands for \"" + printable(a, 64) +
                              "\" and for \"" + printable(b, 64) + "\"");
  };
  for (const auto& [text, id] : spec.vocab) {
    Source& source = sources[static_cast<std::size_t>(id)];
    if (source.in_model) return clash(id, source.text, text);
    source = {.text = text, .in_model = true};
  }
  for (const AddedTokenSpec& token : spec.added_tokens) {
    Source& source = sources[static_cast<std::size_t>(token.id)];
    if ((source.in_model && source.text != token.content) || source.added) {
      return clash(token.id, source.text, token.content);
    }
    const std::int32_t known = index.find(token.content);
    if (known >= 0 && known != token.id) {
      return corrupt(where, "added_tokens: \"" + printable(token.content, 64) + "\" has id " +
                                std::to_string(token.id) + ", but " + std::to_string(known) +
                                " in model.vocab");
    }
    source.text = token.content;
    source.added = true;
    source.special = token.special;
  }
  return Status::ok();
}

// The text that a token of characters stands for: a byte, or the token with its marks as spaces.
std::string decoded_text(std::string_view text, const std::string& space_mark) {
  const int byte = byte_of_fallback_token(text);
  if (byte >= 0) return std::string(1, static_cast<char>(byte));
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t mark = std::min(text.find(space_mark, at), text.size());
    out += text.substr(at, mark - at);
    if (mark < text.size()) out += ' ';
    at = mark + space_mark.size();
  }
  return out;
}

}  // namespace

int byte_of_fallback_token(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const std::size_t high = kDigits.find(text[3]);
  const std::size_t low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(high * 16 + low);
}

TokenIndex::TokenIndex(const TokenizerSpec& spec)
    : slots_(std::bit_ceil(spec.vocab.size() * 2 + 2)) {
  const std::size_t mask = slots_.size() - 1;
  for (const auto& token : spec.vocab) {
    const std::uint64_t hash = std::hash<std::string_view>()(token.first);
    std::size_t slot = hash & mask;
    while (slots_[slot].token != nullptr) slot = (slot + 1) & mask;
    slots_[slot] = {.hash = hash, .token = &token};
  }
}

std::int32_t TokenIndex::find(std::string_view text) const {
  const std::size_t mask = slots_.size() - 1;
  const std::uint64_t hash = std::hash<std::string_view>()(text);
  for (std::size_t slot = hash & mask; slots_[slot].token != nullptr; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash && slots_[slot].token->first == text) {
      return slots_[slot].token->second;
    }
  }
  return -1;
}

Result<Vocabulary> Vocabulary::build(const TokenizerSpec& spec, const TokenIndex& index,
                                     const Where& where) {
  std::int32_t highest = 0;
  for (const auto& [text, id] : spec.vocab) highest = std::max(highest, id);
  for (const AddedTokenSpec& token : spec.added_tokens) highest = std::max(highest, token.id);
  MOE_RETURN_IF_ERROR(check_sizes(spec, highest, where));

  std::vector<Source> sources(static_cast<std::size_t>(highest) + 1);
  MOE_RETURN_IF_ERROR(collect(spec, index, where, sources));

  Vocabulary vocab;
  vocab.entries_.resize(sources.size() + 1);
  std::string bytes;
  for (std::size_t id = 0; id < sources.size(); ++id) {
    const Source& source = sources[id];
    const bool characters = spec.symbols == SymbolKind::kCharacters;
    const bool byte_level =
        !characters && source.in_model && from_byte_alphabet(source.text, &bytes);
    if (characters) bytes = decoded_text(source.text, spec.space_mark);
    vocab.entries_[id] = {.begin = static_cast<std::uint32_t>(vocab.pool_.size()),
                          .byte_level = byte_level,
                          .special = source.special};
    vocab.pool_ += byte_level || characters ? std::string_view(bytes) : source.text;
    if (!source.added) continue;
    const auto [found, is_new] =
        vocab.added_.try_emplace(std::string(source.text), static_cast<std::int32_t>(id));
    if (!is_new) {
      return corrupt(where, "added_tokens: the text \"" + printable(source.text, 64) +
                                "\" has ids " + std::to_string(found->second) + " and " +
                                std::to_string(id));
    }
  }
  vocab.entries_.back().begin = static_cast<std::uint32_t>(vocab.pool_.size());
  return vocab;
}

std::string_view Vocabulary::bytes(std::int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const auto at = static_cast<std::size_t>(id);
  return std::string_view(pool_).substr(entries_[at].begin,
                                        entries_[at + 1].begin - entries_[at].begin);
}

bool Vocabulary::is_byte_level(std::int32_t id) const {
  return id >= 0 && id < size() && entries_[static_cast<std::size_t>(id)].byte_level;
}

bool Vocabulary::is_special(std::int32_t id) const {
  return id >= 0 && id < size() && entries_[static_cast<std::size_t>(id)].special;
}

std::int32_t Vocabulary::added_token(std::string_view content) const {
  const auto found = added_.find(content);
  return found == added_.end() ? -1 : found->second;
}

}  // namespace moepack
