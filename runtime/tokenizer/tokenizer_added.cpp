#include "runtime/tokenizer/tokenizer_added.h"

#include <algorithm>
#include <string>

#include "formats/base/utf8.h"
#include "runtime/tokenizer/tokenizer_unicode.h"

namespace moepack {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  const char* at = text.data() + text.size();
  return is_word_character(previous_character(&at));
}

bool starts_with_word(std::string_view text) {
  if (text.empty()) return false;
  const char* at = text.data();
  return is_word_character(next_character(&at));
}

// Length of `text` without the white space at its end.
std::size_t trimmed_size(std::string_view text) {
  const char* end = text.data() + text.size();
  while (end > text.data()) {
    const char* at = end;
    if (!is_white_space(previous_character(&at))) break;
    end = at;
  }
  return static_cast<std::size_t>(end - text.data());
}

std::size_t leading_space(std::string_view text) {
  const char* const end = text.data() + text.size();
  const char* done = text.data();
  for (const char* at = done; at < end; done = at) {
    if (!is_white_space(next_character(&at))) break;
  }
  return static_cast<std::size_t>(done - text.data());
}

}  // namespace

Status AddedTokenMatcher::add(std::string_view pattern, const AddedTokenSpec& token,
                              const Where& where) {
  if (pattern.size() > kMaxBytes) {
    return unsupported(where, "added token " + std::to_string(token.id) + " is longer than " +
                                  std::to_string(kMaxBytes) + " bytes");
  }
  std::uint32_t node = 0;
  for (const char byte : pattern) {
    const auto [found, is_new] =
        edges_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.emplace_back();
    node = found->second;
  }
  if (nodes_[node].token >= 0) {
    return corrupt(where, "added_tokens: the text \"" + printable(pattern, 64) + "\" stands twice");
  }
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.lstrip, token.rstrip, token.single_word});
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  return Status::ok();
}

AddedTokenMatcher::Match AddedTokenMatcher::next_match(
    std::string_view text, std::size_t from, std::span<const LiteralRange>& literal) const {
  const auto may_start = [this](char c) { return starts_[static_cast<unsigned char>(c)]; };
  while (true) {
    const auto* start = std::find_if(text.data() + from, text.data() + text.size(), may_start);
    from = static_cast<std::size_t>(start - text.data());
    if (from == text.size()) return {from, from, nullptr};
    while (!literal.empty() && literal.front().end <= from) literal = literal.subspan(1);
    // A token may neither begin in text that is literal nor reach into it.
    const std::size_t limit = literal.empty() ? text.size() : literal.front().begin;
    Match best{from, from, nullptr};
    std::uint32_t node = 0;
    for (std::size_t i = from; i < limit; ++i) {
      const auto next = edges_.find(edge(node, text[i]));
      if (next == edges_.end()) break;
      node = next->second;
      if (nodes_[node].token >= 0) {
        best = {from, i + 1, &tokens_[static_cast<std::size_t>(nodes_[node].token)]};
      }
    }
    if (best.token != nullptr) return best;
    from = from < limit ? from + 1 : literal.front().end;
  }
}

// Where a token that takes the white space behind it is followed by a token made of white space,
// the reference emits both, unless the second takes what precedes it and so ends up with nothing.
Status AddedTokenMatcher::find(std::string_view text, const Sink& sink,
                               std::span<const LiteralRange> literal) const {
  std::size_t done = 0;
  std::size_t from = 0;
  while (!tokens_.empty()) {
    const Match match = next_match(text, from, literal);
    if (match.token == nullptr) break;
    from = match.end;
    const Token& token = *match.token;
    if (token.single_word &&
        (ends_with_word(text.substr(0, match.begin)) || starts_with_word(text.substr(match.end)))) {
      continue;
    }
    std::size_t begin = match.begin;
    std::size_t end = match.end;
    if (token.lstrip) begin = std::max(trimmed_size(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (done < begin) MOE_RETURN_IF_ERROR(sink(kText, text.substr(done, begin - done)));
    if (begin < end) MOE_RETURN_IF_ERROR(sink(token.id, {}));
    done = end;
  }
  if (done == text.size()) return Status::ok();
  return sink(kText, text.substr(done));
}

}  // namespace moepack
