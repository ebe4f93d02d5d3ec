#include "runtime/chat/output_text.h"

#include <algorithm>
#include <utility>

#include "formats/base/utf8.h"

namespace moepack {

OutputMarker make_output_marker(std::string text, std::span<const std::string> added_tokens,
                                std::string_view core) {
  OutputMarker marker{.text = std::move(text)};
  if (core.empty()) core = marker.text;
  const std::size_t begin = marker.text.find(core);
  const bool is_token =
      std::find(added_tokens.begin(), added_tokens.end(), core) != added_tokens.end();
  if (begin != std::string::npos && is_token) {
    marker.added_begin = begin;
    marker.added_size = core.size();
  }
  return marker;
}

bool is_token_of(const OutputMarker& marker, const OutputPiece& piece) {
  return marker.is_added() && piece.is_added &&
         std::string_view(marker.text).substr(marker.added_begin, marker.added_size) == piece.bytes;
}

void OutputText::append(std::string_view bytes, bool is_added) {
  if (bytes.empty()) return;
  if (is_added) {
    append_lossy_utf8(unfinished_, true, buffer_);
    unfinished_.clear();
    const std::size_t begin = buffer_.size();
    append_lossy_utf8(bytes, true, buffer_);
    added_.push_back({taken_ + begin - begin_, buffer_.size() - begin});
    return;
  }
  unfinished_ += bytes;
  unfinished_.erase(0, append_lossy_utf8(unfinished_, false, buffer_));
}

void OutputText::end(bool drops_unfinished) {
  if (!drops_unfinished) append_lossy_utf8(unfinished_, true, buffer_);
  unfinished_.clear();
  is_ended_ = true;
}

void OutputText::take(std::size_t bytes) {
  begin_ += bytes;
  taken_ += bytes;
  while (!added_.empty() && added_.front().begin < taken_) added_.pop_front();
  if (begin_ < 4096 && begin_ < buffer_.size()) return;
  buffer_.erase(0, begin_);
  begin_ = 0;
}

bool OutputText::is_added_range(std::size_t at, std::size_t size) const {
  const auto is_before = [](const AddedRange& range, std::size_t place) {
    return range.begin < place;
  };
  const auto found = std::lower_bound(added_.begin(), added_.end(), taken_ + at, is_before);
  return found != added_.end() && found->begin == taken_ + at && found->size == size;
}

MarkerMatch OutputText::match(std::size_t at, const OutputMarker& marker) const {
  const std::string_view text = rest().substr(std::min(at, rest().size()));
  const std::size_t known = std::min(text.size(), marker.text.size());
  if (text.substr(0, known) != std::string_view(marker.text).substr(0, known)) {
    return MarkerMatch::kNo;
  }
  // Added tokens come whole: what has only begun is not one.
  if (marker.is_added() && known > marker.added_begin &&
      !is_added_range(at + marker.added_begin, marker.added_size)) {
    return MarkerMatch::kNo;
  }
  if (known == marker.text.size()) return MarkerMatch::kYes;
  return is_ended_ ? MarkerMatch::kNo : MarkerMatch::kMaybe;
}

MarkerMatch OutputText::match_any(std::size_t at, std::span<const OutputMarker> markers,
                                  std::size_t* index) const {
  MarkerMatch best = MarkerMatch::kNo;
  for (std::size_t i = 0; i < markers.size(); ++i) {
    const MarkerMatch one = match(at, markers[i]);
    if (one == MarkerMatch::kNo || one <= best) continue;
    best = one;
    if (index) *index = i;
  }
  return best;
}

FoundMarker OutputText::find(std::span<const OutputMarker> markers, std::size_t from) const {
  std::string first;
  for (const OutputMarker& marker : markers) first += marker.text.front();
  FoundMarker found;
  while (true) {
    from = rest().find_first_of(first, from);
    if (from == std::string_view::npos) return found;
    found.match = match_any(from, markers, &found.index);
    if (found.match != MarkerMatch::kNo) {
      found.at = from;
      return found;
    }
    ++from;
  }
}

std::size_t OutputText::skip_space(std::size_t at) const {
  while (at < rest().size() && is_output_space(rest()[at])) ++at;
  return at;
}

}  // namespace moepack
