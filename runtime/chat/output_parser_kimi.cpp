// <|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>{…}<|tool_call_end|> within a
// section, as Kimi K2 writes it. The id is the text before the arguments.
#include <algorithm>
#include <utility>

#include "runtime/chat/json_call_parser.h"
#include "runtime/chat/output_parser_families.h"

namespace moepack {
namespace {

constexpr std::size_t kLongestKimiId = 256;

struct KimiName {
  std::string id, name;
};

class KimiParser final : public JsonCallParser {
 public:
  explicit KimiParser(OutputParserOptions options) : JsonCallParser(std::move(options)) {
    sections_ = {marker("<|tool_calls_section_begin|>"), marker("<|tool_call_section_begin|>")};
    begin_ = marker("<|tool_call_begin|>");
    arguments_ = {marker("<|tool_call_argument_begin|>")};
    openers_ = sections_;
    openers_.push_back(begin_);
    ends_ = {marker("<|tool_call_end|>"), marker("<|tool_calls_section_end|>"),
             marker("<|tool_call_section_end|>")};
    junk_ = ends_;
  }

 protected:
  JsonCallHead match_head(std::size_t at) override {
    std::size_t here = at;
    std::size_t which = 0;
    if (text_.match_any(here, sections_, &which) == MarkerMatch::kYes) {
      here = text_.skip_space(here + sections_[which].text.size());
    }
    const MarkerMatch begins = text_.match(here, begin_);
    if (begins != MarkerMatch::kYes) return {.match = begins};
    here += begin_.text.size();
    const FoundMarker found = text_.find(arguments_, here);
    if (found.match != MarkerMatch::kYes || found.at - here >= kLongestKimiId) {
      return {.match = may_continue(here, found)};
    }
    KimiName name = name_of(text_.rest().substr(here, found.at - here));
    here = text_.skip_space(found.at + arguments_.front().text.size());
    if (text_.is_open_at(here)) return {.match = MarkerMatch::kMaybe};
    const MarkerMatch ends = text_.match_any(here, ends_);
    const bool is_object = here < text_.rest().size() && text_.rest()[here] == '{';
    if (!is_object && ends != MarkerMatch::kYes) return {.match = ends};
    JsonCallHead head{MarkerMatch::kYes, here - at, std::move(name.id), std::move(name.name), {}};
    if (!is_object) head.arguments = "{}";
    return head;
  }

 private:
  MarkerMatch may_continue(std::size_t id_at, const FoundMarker& end) const {
    const std::size_t known = std::min(end.at, text_.rest().size()) - id_at;
    return known < kLongestKimiId ? MarkerMatch::kMaybe : MarkerMatch::kNo;
  }

  // "functions.f:0", "functions.f0", "functionsf0", "f:0" or "f". Ids without a number are not
  // unique, so they are left to the caller.
  KimiName name_of(std::string_view text) const {
    text.remove_prefix(std::min(text.find_first_not_of(" \n\t\r"), text.size()));
    text = text.substr(0, text.find_last_not_of(" \n\t\r") + 1);
    const std::string verbatim(text);
    if (find_tool(text)) return {"", verbatim};
    for (const std::string_view prefix : {"functions.", "functions"}) {
      if (!text.starts_with(prefix)) continue;
      text.remove_prefix(prefix.size());
      break;
    }
    if (find_tool(text)) return {"", std::string(text)};
    const std::size_t name_size = text.find_last_not_of("0123456789") + 1;
    const std::string_view index = text.substr(name_size);
    text = text.substr(0, name_size);
    const bool has_colon = text.ends_with(':');
    if (has_colon) text.remove_suffix(1);
    if (index.empty() || (!has_colon && !find_tool(text))) return {"", verbatim};
    const std::string name(text);
    return {has_colon ? verbatim : "functions." + name + ":" + std::string(index), name};
  }

  std::vector<OutputMarker> sections_, arguments_;
  OutputMarker begin_;
};

}  // namespace

std::unique_ptr<OutputParser> make_kimi_parser(OutputParserOptions options) {
  return std::make_unique<KimiParser>(std::move(options));
}

}  // namespace moepack
