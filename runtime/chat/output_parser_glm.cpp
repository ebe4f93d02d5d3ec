// <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>, as GLM-4.5 and
// later write it; 4.5 and 4.6 put line ends between the tags.
#include <algorithm>
#include <utility>

#include "runtime/chat/output_parser_families.h"
#include "runtime/chat/tagged_call_parser.h"

namespace moepack {
namespace {

constexpr std::size_t kLongestGlmName = 256;

class GlmParser final : public TaggedCallParser {
 public:
  explicit GlmParser(OutputParserOptions options) : TaggedCallParser(std::move(options)) {
    begin_ = marker("<tool_call>");
    openers_ = {begin_};
    parameter_open_ = marker("<arg_key>");
    key_end_ = {marker("</arg_key>")};
    value_begin_ = marker("<arg_value>");
    value_end_ = marker("</arg_value>");
    call_end_ = marker("</tool_call>");
    junk_ = {call_end_, value_end_};
  }

 protected:
  NamedTag match_call(std::size_t at) const override {
    NamedTag tag{.match = text_.match(at, begin_)};
    if (tag.match != MarkerMatch::kYes) return tag;
    const std::size_t begin = text_.skip_space(at + begin_.text.size());
    const std::string_view rest = text_.rest().substr(begin, kLongestGlmName);
    const std::size_t end = rest.find_first_of("<\n");
    if (end == std::string_view::npos) {
      tag.match = rest.size() < kLongestGlmName ? MarkerMatch::kMaybe : MarkerMatch::kNo;
      return tag;
    }
    const std::string_view name = rest.substr(0, end);
    tag.name = name.substr(0, name.find_last_not_of(" \t\r") + 1);
    tag.size = begin + end - at;
    return tag;
  }

  NamedTag match_parameter(std::size_t at) const override {
    NamedTag tag{.match = text_.match(at, parameter_open_)};
    if (tag.match != MarkerMatch::kYes) return tag;
    const std::size_t begin = at + parameter_open_.text.size();
    const FoundMarker end = text_.find(key_end_, begin);
    const std::size_t known = std::min(end.at, text_.rest().size()) - begin;
    if (end.match != MarkerMatch::kYes || known >= kLongestGlmName) {
      const bool may_come = known < kLongestGlmName && !text_.is_ended();
      tag.match = may_come ? MarkerMatch::kMaybe : MarkerMatch::kNo;
      return tag;
    }
    tag.name = text_.rest().substr(begin, end.at - begin);
    const std::size_t value = text_.skip_space(end.at + key_end_.front().text.size());
    tag.match = tag.name.empty() ? MarkerMatch::kNo : text_.match(value, value_begin_);
    tag.size = value + value_begin_.text.size() - at;
    return tag;
  }

 private:
  OutputMarker begin_, value_begin_;
  std::vector<OutputMarker> key_end_;
};

}  // namespace

std::unique_ptr<OutputParser> make_glm_parser(OutputParserOptions options) {
  return std::make_unique<GlmParser>(std::move(options));
}

}  // namespace moepack
