// Texts outside the grammar that a constraint looks for: marks that wake it, and thoughts that may
// stand before the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/constrain/token_bytes.h"

namespace moepack {

// Looks for one text in the bytes that come.
class AwaitedText {
 public:
  AwaitedText(std::string text, const TokenBytes& tokens)
      : text_(std::move(text)), token_(tokens.find_marker(text_)) {}

  bool is_token() const { return token_ >= 0; }
  bool is_begun() const { return !is_token() && matched_ > 0; }
  // How many bytes of the token lie behind the end of the text, if the token completes it.
  std::optional<std::size_t> rest_after(std::int32_t id, std::string_view bytes) const {
    if (is_token()) return id == token_ ? std::optional<std::size_t>(0) : std::nullopt;
    std::size_t matched = matched_;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      matched = next(matched, bytes[i]);
      if (matched == text_.size()) return bytes.size() - i - 1;
    }
    return std::nullopt;
  }
  // The tokens that must still come, at most.
  std::size_t fewest() const { return is_token() ? 1 : text_.size() - matched_; }
  // Whether the token is the text, or the next bytes of it and no more.
  bool goes_on_with(std::int32_t id, std::string_view bytes) const {
    if (is_token()) return id == token_;
    return !bytes.empty() && text_.compare(matched_, bytes.size(), bytes) == 0;
  }
  void accept(std::string_view bytes) {
    for (const char byte : bytes) matched_ = next(matched_, byte) % text_.size();
  }
  void reset() { matched_ = 0; }

 private:
  // The longest beginning of the text that what came ends with.
  std::size_t next(std::size_t matched, char byte) const {
    while (true) {
      if (text_[matched] == byte) return matched + 1;
      if (matched == 0) return 0;
      std::size_t shorter = matched - 1;
      while (text_.compare(0, shorter, text_, matched - shorter, shorter) != 0) --shorter;
      matched = shorter;
    }
  }

  std::string text_;
  std::int32_t token_;
  std::size_t matched_ = 0;
};

// A text that the answer may begin with, behind a little white space. Where the vocabulary has a
// token for it, the token alone stands for it.
class OpeningText {
 public:
  struct Taken {
    std::size_t spaces = 0, matched = 0;  // bytes of all that came
    std::optional<std::size_t> rest;  // of the token behind the end of the text, if it is complete
  };

  OpeningText(std::string text, const TokenBytes& tokens)
      : text_(std::move(text)), token_(tokens.find_marker(text_)) {}

  // Nothing: the token leads elsewhere.
  std::optional<Taken> take(std::int32_t id, std::string_view bytes) const {
    Taken taken = so_far_;
    if (token_ >= 0 && id == token_) return Taken{taken.spaces, text_.size(), 0};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (taken.matched == 0 && (bytes[i] == ' ' || bytes[i] == '\n')) {
        if (++taken.spaces > kMaxSpaces) return std::nullopt;
        continue;
      }
      if (token_ >= 0 || bytes[i] != text_[taken.matched]) return std::nullopt;
      if (++taken.matched < text_.size()) continue;
      taken.rest = bytes.size() - i - 1;
      return taken;
    }
    return taken;
  }
  void accept(const Taken& taken) { so_far_ = taken; }

 private:
  static constexpr std::size_t kMaxSpaces = 2;

  std::string text_;
  std::int32_t token_;
  Taken so_far_;
};

}  // namespace moepack
