#include "runtime/chat/stop_texts.h"

#include <algorithm>
#include <utility>

namespace moepack {
namespace {

// The longest of `texts` that `text` ends with.
std::optional<std::size_t> find_stop_at_end(const std::vector<std::string>& texts,
                                            std::string_view text) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty() || !text.ends_with(texts[i])) continue;
    if (!best || texts[i].size() > texts[*best].size()) best = i;
  }
  return best;
}

}  // namespace

StopTexts::StopTexts(std::vector<std::string> texts) : texts_(std::move(texts)) {}

std::size_t StopTexts::possible_beginning() const {
  const std::string_view held = held_;
  std::size_t longest = 0;
  for (const std::string& text : texts_) {
    const std::string_view whole = text;
    if (whole.empty()) continue;
    for (std::size_t n = std::min(whole.size() - 1, held.size()); n > longest; --n) {
      if (held.ends_with(whole.substr(0, n))) longest = n;
    }
  }
  return longest;
}

StopTexts::Step StopTexts::push(std::string_view piece) {
  Step step;
  if (is_stopped_) return step;
  std::size_t searched = held_.size();
  held_ += piece;
  while (searched < held_.size()) {
    const std::string_view seen = std::string_view(held_).substr(0, ++searched);
    step.stop = find_stop_at_end(texts_, seen);
    if (!step.stop) continue;
    is_stopped_ = true;
    step.text.assign(seen.substr(0, seen.size() - texts_[*step.stop].size()));
    held_.clear();
    return step;
  }
  const std::size_t sent = held_.size() - possible_beginning();
  step.text = held_.substr(0, sent);
  held_.erase(0, sent);
  return step;
}

std::string StopTexts::finish() {
  is_stopped_ = true;
  return std::exchange(held_, {});
}

}  // namespace moepack
