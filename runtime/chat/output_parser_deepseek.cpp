// <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜> within one section, as DeepSeek
// V3.1 writes it, and the older form of V3 and R1, which has "function" for NAME, and after the
// separator the name, a line end and the object in a block of code.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/chat/json_call_parser.h"
#include "runtime/chat/output_parser_families.h"

namespace moepack {
namespace {

constexpr std::size_t kLongestDeepseekName = 256;
// How models of few bits spell the character between two words.
constexpr std::array<std::string_view, 4> kWordGaps = {"▁", "_", " ", "\\_"};

std::string_view trim_deepseek(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \n\t\r"), text.size()));
  return text.substr(0, text.find_last_not_of(" \n\t\r") + 1);
}

class DeepseekParser final : public JsonCallParser {
 public:
  explicit DeepseekParser(OutputParserOptions options) : JsonCallParser(std::move(options)) {
    sections_ = spellings({"tool", "calls", "begin"});
    begins_ = spellings({"tool", "call", "begin"});
    separators_ = spellings({"tool", "sep"});
    openers_ = sections_;
    openers_.insert(openers_.end(), begins_.begin(), begins_.end());
    ends_ = spellings({"tool", "call", "end"});
    const auto section_ends = spellings({"tool", "calls", "end"});
    ends_.insert(ends_.end(), section_ends.begin(), section_ends.end());
    junk_ = ends_;
    fence_ = OutputMarker{.text = "```"};
  }

 protected:
  JsonCallHead match_head(std::size_t at) override {
    std::size_t here = at;
    std::size_t which = 0;
    if (text_.match_any(here, sections_, &which) == MarkerMatch::kYes) {
      here = text_.skip_space(here + sections_[which].text.size());
    }
    const MarkerMatch begins = text_.match_any(here, begins_, &which);
    if (begins != MarkerMatch::kYes) return {.match = begins};
    here += begins_[which].text.size();
    const FoundMarker found = text_.find(separators_, here);
    if (found.match != MarkerMatch::kYes || found.at - here >= kLongestDeepseekName) {
      return {.match = may_continue(here, found.at)};
    }
    const std::string_view name = trim_deepseek(text_.rest().substr(here, found.at - here));
    here = text_.skip_space(found.at + separators_[found.index].text.size());
    if (text_.is_open_at(here)) return {.match = MarkerMatch::kMaybe};
    const bool is_old = name == "function" && text_.rest()[std::min(here, last())] != '{';
    has_fence_ = is_old;
    return is_old ? match_old(at, here) : match_arguments(at, here, std::string(name));
  }

  MarkerMatch match_tail(std::size_t* size) override {
    if (!has_fence_) return MarkerMatch::kNo;
    const std::size_t at = text_.skip_space(0);
    *size = at + fence_.text.size();
    return text_.match(at, fence_);
  }

 private:
  std::size_t last() const { return text_.rest().size() - 1; }

  std::vector<OutputMarker> spellings(std::initializer_list<std::string_view> words) const {
    std::vector<OutputMarker> markers;
    for (const std::string_view gap : kWordGaps) {
      for (const auto& [open, close] : {std::pair{"<｜", "｜>"}, std::pair{"<|", "|>"}}) {
        std::string text = open;
        for (const std::string_view word : words) {
          if (word != *words.begin()) text += gap;
          text += word;
        }
        markers.push_back(marker(text + close));
      }
    }
    return markers;
  }

  // A name from `from` on, with nothing that ends it before `end`.
  MarkerMatch may_continue(std::size_t from, std::size_t end) const {
    const std::size_t known = std::min(end, text_.rest().size()) - from;
    return known < kLongestDeepseekName ? MarkerMatch::kMaybe : MarkerMatch::kNo;
  }

  JsonCallHead match_old(std::size_t at, std::size_t here) const {
    const std::size_t end = text_.rest().find('\n', here);
    if (end == std::string_view::npos || end - here >= kLongestDeepseekName) {
      return {.match = may_continue(here, end)};
    }
    const std::string name(trim_deepseek(text_.rest().substr(here, end - here)));
    here = text_.skip_space(end);
    const MarkerMatch fence = text_.match(here, fence_);
    if (fence == MarkerMatch::kMaybe) return {.match = fence};
    if (fence == MarkerMatch::kYes) {
      here += fence_.text.size();
      const MarkerMatch json = text_.match(here, OutputMarker{.text = "json"});
      if (json == MarkerMatch::kMaybe) return {.match = json};
      here = text_.skip_space(json == MarkerMatch::kYes ? here + 4 : here);
    }
    return match_arguments(at, here, name);
  }

  JsonCallHead match_arguments(std::size_t at, std::size_t here, std::string name) const {
    if (text_.is_open_at(here)) return {.match = MarkerMatch::kMaybe};
    const MarkerMatch ends = text_.match_any(here, ends_);
    const bool is_object = here < text_.rest().size() && text_.rest()[here] == '{';
    if (!is_object && ends != MarkerMatch::kYes) return {.match = ends};
    JsonCallHead head{MarkerMatch::kYes, here - at, {}, std::move(name), {}};
    if (!is_object) head.arguments = "{}";
    return head;
  }

  std::vector<OutputMarker> sections_, begins_, separators_;
  OutputMarker fence_;
  bool has_fence_ = false;
};

}  // namespace

std::unique_ptr<OutputParser> make_deepseek_parser(OutputParserOptions options) {
  return std::make_unique<DeepseekParser>(std::move(options));
}

}  // namespace moepack
