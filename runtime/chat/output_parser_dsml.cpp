// <｜DSML｜function_calls><｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY"
// string="true">VALUE
// </｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>, as DeepSeek V3.2 writes it; V4
// has tool_calls for function_calls.
#include <utility>

#include "runtime/chat/output_parser_families.h"
#include "runtime/chat/tagged_call_parser.h"

namespace moepack {
namespace {

constexpr std::string_view kDsmlWord = "｜DSML｜";

class DsmlParser final : public TaggedCallParser {
 public:
  explicit DsmlParser(OutputParserOptions options) : TaggedCallParser(std::move(options)) {
    sections_ = {tag("<", "function_calls>"), tag("<", "tool_calls>")};
    invoke_ = tag("<", "invoke name=");
    openers_ = {sections_[0], sections_[1], invoke_};
    parameter_open_ = tag("<", "parameter name=");
    value_end_ = tag("</", "parameter>");
    call_end_ = tag("</", "invoke>");
    section_ends_ = {tag("</", "function_calls>"), tag("</", "tool_calls>")};
    after_call_end_ = {section_ends_[0], section_ends_[1], invoke_, sections_[0], sections_[1]};
    junk_ = {section_ends_[0], section_ends_[1], call_end_, value_end_};
  }

 protected:
  NamedTag match_call(std::size_t at) const override {
    std::size_t here = at;
    std::size_t which = 0;
    if (text_.match_any(at, sections_, &which) == MarkerMatch::kYes) {
      here = text_.skip_space(at + sections_[which].text.size());
    }
    NamedTag found = match_attribute_tag(text_, here, invoke_);
    found.size += here - at;
    return found;
  }

  NamedTag match_parameter(std::size_t at) const override {
    return match_attribute_tag(text_, at, parameter_open_);
  }

 private:
  OutputMarker tag(std::string_view open, std::string_view word) const {
    return marker(std::string(open) + std::string(kDsmlWord) + std::string(word), kDsmlWord);
  }

  std::vector<OutputMarker> sections_;
  OutputMarker invoke_;
};

}  // namespace

std::unique_ptr<OutputParser> make_dsml_parser(OutputParserOptions options) {
  return std::make_unique<DsmlParser>(std::move(options));
}

}  // namespace moepack
