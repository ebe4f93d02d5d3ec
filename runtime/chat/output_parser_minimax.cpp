// <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter></invoke>
// </minimax:tool_call>, as MiniMax M2 writes it.
#include <utility>

#include "runtime/chat/output_parser_families.h"
#include "runtime/chat/tagged_call_parser.h"

namespace moepack {
namespace {

class MinimaxParser final : public TaggedCallParser {
 public:
  explicit MinimaxParser(OutputParserOptions options) : TaggedCallParser(std::move(options)) {
    section_ = marker("<minimax:tool_call>");
    invoke_ = marker("<invoke name=");
    openers_ = {section_, invoke_};
    parameter_open_ = marker("<parameter name=");
    value_end_ = marker("</parameter>");
    call_end_ = marker("</invoke>");
    section_ends_ = {marker("</minimax:tool_call>")};
    after_call_end_ = {section_ends_.front(), invoke_, section_};
    junk_ = {section_ends_.front(), call_end_, value_end_};
  }

 protected:
  NamedTag match_call(std::size_t at) const override {
    std::size_t here = at;
    if (text_.match(at, section_) == MarkerMatch::kYes) {
      here = text_.skip_space(at + section_.text.size());
    }
    NamedTag tag = match_attribute_tag(text_, here, invoke_);
    tag.size += here - at;
    return tag;
  }

  NamedTag match_parameter(std::size_t at) const override {
    return match_attribute_tag(text_, at, parameter_open_);
  }

 private:
  OutputMarker section_, invoke_;
};

}  // namespace

std::unique_ptr<OutputParser> make_minimax_parser(OutputParserOptions options) {
  return std::make_unique<MinimaxParser>(std::move(options));
}

}  // namespace moepack
