// <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>, as Qwen3-Coder
// and Qwen3.5 and later write it.
#include <utility>

#include "runtime/chat/output_parser_families.h"
#include "runtime/chat/tagged_call_parser.h"

namespace moepack {
namespace {

class QwenXmlParser final : public TaggedCallParser {
 public:
  explicit QwenXmlParser(OutputParserOptions options) : TaggedCallParser(std::move(options)) {
    section_ = marker("<tool_call>");
    function_ = marker("<function=");
    openers_ = {section_, function_};
    parameter_open_ = marker("<parameter=");
    value_end_ = marker("</parameter>");
    call_end_ = marker("</function>");
    section_ends_ = {marker("</tool_call>")};
    after_call_end_ = {section_ends_.front(), section_};
    junk_ = {section_ends_.front(), call_end_, value_end_};
    strips_newlines_ = true;
  }

 protected:
  NamedTag match_call(std::size_t at) const override {
    std::size_t here = at;
    if (text_.match(at, section_) == MarkerMatch::kYes) {
      here = text_.skip_space(at + section_.text.size());
    }
    NamedTag tag = match_name_tag(text_, here, function_);
    tag.size += here - at;
    return tag;
  }

  NamedTag match_parameter(std::size_t at) const override {
    return match_name_tag(text_, at, parameter_open_);
  }

 private:
  OutputMarker section_, function_;
};

}  // namespace

std::unique_ptr<OutputParser> make_qwen_xml_parser(OutputParserOptions options) {
  return std::make_unique<QwenXmlParser>(std::move(options));
}

}  // namespace moepack
