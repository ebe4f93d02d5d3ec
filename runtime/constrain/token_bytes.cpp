#include "runtime/constrain/token_bytes.h"

#include <algorithm>

#include "runtime/constrain/constraint.h"
#include "runtime/constrain/text_bytes.h"

namespace moepack {
namespace {

// The number of characters, or 0 if the text is not plain.
std::size_t plain_characters(std::string_view text) {
  TextBytes::State state = TextBytes::kBetween;
  std::size_t count = 0;
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (!TokenBytes::is_plain_byte(byte)) return 0;
    count += state == TextBytes::kBetween ? 1 : 0;
    state = TextBytes::next(state, byte);
    if (state == TextBytes::kWrong) return 0;
  }
  return state == TextBytes::kBetween ? count : 0;
}

bool is_marker_token(const Tokenizer& tokenizer, std::int32_t id) {
  if (tokenizer.is_special(id)) return true;
  const std::string_view text = tokenizer.bytes(id);
  return text.size() > 2 && text.front() == '<' && text.back() == '>' &&
         tokenizer.added_token(text) == id;
}

}  // namespace

TokenBytes::TokenBytes(std::span<const Token> tokens, std::span<const std::int32_t> end_ids)
    : kinds_(tokens.size(), Kind::kNothing),
      same_(tokens.size(), -1),
      plain_((tokens.size() + 63) / 64),
      plain_characters_(tokens.size(), 0) {
  std::vector<std::int32_t> texts, others;
  for (const Token& token : tokens) {
    begins_.push_back(pool_.size());
    pool_ += token.bytes;
  }
  begins_.push_back(pool_.size());
  for (const std::int32_t id : end_ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) continue;
    if (kind(id) != Kind::kEnd) end_ids_.push_back(id);
    kinds_[static_cast<std::size_t>(id)] = Kind::kEnd;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (tokens[i].bytes.empty() || kinds_[i] == Kind::kEnd) continue;
    kinds_[i] = tokens[i].is_marker ? Kind::kMarker : Kind::kText;
    if (tokens[i].is_marker) {
      markers_.push_back(id);
      continue;
    }
    constexpr std::size_t kMostCharacters = 0xFFFF;
    const std::size_t characters = std::min(plain_characters(tokens[i].bytes), kMostCharacters);
    plain_characters_[i] = static_cast<std::uint16_t>(characters);
    longest_plain_ = std::max(longest_plain_, characters);
    if (characters > 0) plain_[i / 64] |= std::uint64_t{1} << (i % 64);
    if (tokens[i].bytes.size() > kMaxDepth) {
      long_.push_back(id);
      continue;
    }
    texts.push_back(id);
    if (characters == 0) others.push_back(id);
  }
  others_ = build_trie(std::move(others));
  all_ = build_trie(std::move(texts));
}

std::vector<TokenBytes::TrieNode> TokenBytes::build_trie(std::vector<std::int32_t> ids) {
  std::sort(ids.begin(), ids.end(), [this](std::int32_t a, std::int32_t b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<TrieNode> nodes;
  std::vector<std::size_t> open;  // the nodes of the bytes of the last token
  const auto close_to = [&](std::size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes[open.back()].skip = static_cast<std::uint32_t>(nodes.size() - open.back());
    }
  };
  std::string_view last;
  std::int32_t last_id = -1;
  for (const std::int32_t id : ids) {
    const std::string_view text = bytes(id);
    if (last_id >= 0 && text == last) {
      same_[static_cast<std::size_t>(last_id)] = id;
      last_id = id;
      continue;
    }
    const auto common = static_cast<std::size_t>(
        std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first - text.begin());
    close_to(common);
    for (std::size_t i = common; i < text.size(); ++i) {
      open.push_back(nodes.size());
      nodes.push_back(
          {.byte = static_cast<std::uint8_t>(text[i]), .depth = static_cast<std::uint8_t>(i + 1)});
    }
    nodes.back().token = id;
    last = text;
    last_id = id;
  }
  close_to(0);
  return nodes;
}

void TokenBytes::add_plain(std::size_t characters, std::span<std::uint64_t> ids) const {
  if (characters >= longest_plain_) {
    for (std::size_t i = 0; i < plain_.size(); ++i) ids[i] |= plain_[i];
    return;
  }
  for (std::size_t i = 0; i < plain_characters_.size(); ++i) {
    // 0 becomes the highest value: not plain.
    const auto before = static_cast<std::uint16_t>(plain_characters_[i] - 1U);
    ids[i / 64] |= std::uint64_t{before < characters} << (i % 64);
  }
}

std::int32_t TokenBytes::find_marker(std::string_view text) const {
  const auto found = std::find_if(markers_.begin(), markers_.end(),
                                  [&](std::int32_t id) { return bytes(id) == text; });
  return found != markers_.end() ? *found : -1;
}

std::shared_ptr<const TokenBytes> make_token_bytes(const Tokenizer& tokenizer,
                                                   std::size_t vocab_limit,
                                                   std::vector<std::int32_t> end_ids) {
  std::vector<TokenBytes::Token> tokens(
      std::min(vocab_limit, static_cast<std::size_t>(tokenizer.size())));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    tokens[i] = {.bytes = tokenizer.bytes(id), .is_marker = is_marker_token(tokenizer, id)};
  }
  return std::make_shared<const TokenBytes>(tokens, end_ids);
}

}  // namespace moepack
