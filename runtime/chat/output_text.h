// Generated text that still has to be understood, and the markers in it.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat/output_parser.h"

namespace moepack {

// A text by which a family tells calls and thoughts from content. Where a part of it is an added
// token of the vocabulary, only that token counts: the same letters in plain text are text.
struct OutputMarker {
  std::string text;
  std::size_t added_begin = 0;  // bytes of the part that must be an added token
  std::size_t added_size = 0;   // 0: plain text

  bool is_added() const { return added_size != 0; }
};

// `core`: the part that may be an added token; empty: all of it.
OutputMarker make_output_marker(std::string text, std::span<const std::string> added_tokens,
                                std::string_view core = {});

// Whether `piece` is the added token of `marker`.
bool is_token_of(const OutputMarker& marker, const OutputPiece& piece);

enum class MarkerMatch { kNo, kMaybe, kYes };  // kMaybe: depends on what follows

struct FoundMarker {
  std::size_t at = std::string_view::npos;  // bytes in rest(); npos: none
  std::size_t index = 0;                    // of the marker
  MarkerMatch match = MarkerMatch::kNo;     // kMaybe: the text ends within it

  bool is_none() const { return at == std::string_view::npos; }
};

inline bool is_output_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The part of a text that nobody has taken yet. It holds whole characters of valid UTF-8: an
// unfinished one waits for its other bytes, and wrong bytes become U+FFFD.
class OutputText {
 public:
  void append(std::string_view bytes, bool is_added);
  // Nothing follows. `drops_unfinished`: an unfinished character is no text.
  void end(bool drops_unfinished);
  bool is_ended() const { return is_ended_; }

  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }
  void take(std::size_t bytes);  // of rest()

  // Whether rest() has the marker at `at`.
  MarkerMatch match(std::size_t at, const OutputMarker& marker) const;
  // The best of several at one place: kYes before kMaybe. `index` tells which, if not null.
  MarkerMatch match_any(std::size_t at, std::span<const OutputMarker> markers,
                        std::size_t* index = nullptr) const;
  // The first place, from `from` on, where one of the markers is or may begin.
  FoundMarker find(std::span<const OutputMarker> markers, std::size_t from = 0) const;
  // The first place from `at` on without white space; rest().size() if there is none.
  std::size_t skip_space(std::size_t at) const;
  // Whether rest() ends at `at` and more may come.
  bool is_open_at(std::size_t at) const { return at >= rest().size() && !is_ended_; }

 private:
  struct AddedRange {
    std::size_t begin, size;  // from the text's first byte
  };
  bool is_added_range(std::size_t at, std::size_t size) const;

  std::string buffer_;
  std::size_t begin_ = 0;  // of rest() in buffer_
  std::size_t taken_ = 0;  // bytes before rest() in the text
  std::deque<AddedRange> added_;
  std::string unfinished_;  // bytes of a character
  bool is_ended_ = false;
};

}  // namespace moepack
