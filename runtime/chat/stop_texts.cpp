#include "runtime/chat/stop_texts.h"

#include <algorithm>
#include <utility>

namespace moepack {
namespace {

// For each beginning of `text`, by its length: that of the longest shorter one it ends with
// (Knuth, Morris and Pratt's failure function).
std::vector<std::uint32_t> shorter_beginnings(std::string_view text) {
  std::vector<std::uint32_t> shorter(text.size() + 1, 0);
  for (std::size_t i = 1; i < text.size(); ++i) {
    std::uint32_t length = shorter[i];
    while (length > 0 && text[i] != text[length]) length = shorter[length];
    shorter[i + 1] = text[i] == text[length] ? length + 1 : 0;
  }
  return shorter;
}

}  // namespace

StopTexts::StopTexts(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    texts_.push_back({.text = text, .shorter = shorter_beginnings(text)});
  }
}

void StopTexts::Text::feed(char byte) {
  while (matched > 0 && byte != text[matched]) matched = shorter[matched];
  if (byte == text[matched]) ++matched;
}

// The longest text that is complete.
std::optional<std::size_t> StopTexts::feed(char byte) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    Text& one = texts_[i];
    if (one.text.empty()) continue;
    one.feed(byte);
    const bool is_whole = one.matched == one.text.size();
    if (is_whole && (!best || one.text.size() > texts_[*best].text.size())) best = i;
  }
  return best;
}

StopTexts::Step StopTexts::push(std::string_view piece) {
  Step step;
  if (is_stopped_) return step;
  std::size_t seen = held_.size();
  held_ += piece;
  while (seen < held_.size()) {
    step.stop = feed(held_[seen++]);
    if (!step.stop) continue;
    is_stopped_ = true;
    step.text = held_.substr(0, seen - texts_[*step.stop].text.size());
    held_.clear();
    return step;
  }
  std::size_t kept = 0;
  for (const Text& one : texts_) kept = std::max(kept, one.matched);
  const std::size_t sent = held_.size() - kept;
  step.text = held_.substr(0, sent);
  held_.erase(0, sent);
  return step;
}

std::string StopTexts::finish() {
  is_stopped_ = true;
  return std::exchange(held_, {});
}

std::string StopTexts::restart() {
  for (Text& one : texts_) one.matched = 0;
  is_stopped_ = false;
  return std::exchange(held_, {});
}

}  // namespace moepack
