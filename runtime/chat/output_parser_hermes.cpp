// <tool_call>{"name": …, "arguments": {…}}</tool_call>, as Qwen2.5, Qwen3 and Hermes write it.
#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/chat/json_call_parser.h"
#include "runtime/chat/output_parser_families.h"

namespace moepack {
namespace {

constexpr auto kJsonMore = LenientJson::Step::kMore;
constexpr auto kJsonBad = LenientJson::Step::kBad;

std::size_t skip_hermes_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_output_space(text[at])) ++at;
  return at;
}

bool is_arguments_key(std::string_view key) { return key == "arguments" || key == "parameters"; }

// An argument value that was written whole: an object, or a string that holds one. Empty if it is
// neither.
std::string hermes_arguments(const std::string& json) {
  if (json == "null") return "{}";
  if (json.starts_with('{')) return json;
  if (!json.starts_with('"')) return {};
  const std::string text = json_string_text(json).value_or("x");
  if (skip_hermes_space(text, 0) == text.size()) return "{}";
  const std::string inner = compact_json(text).value_or("");
  return inner.starts_with('{') ? inner : std::string();
}

// Reads the members of a call's object one after the other, as far as the text goes.
class HermesHeadReader {
 public:
  HermesHeadReader(std::string_view text, std::size_t at) : text_(text), at_(at) {}

  // From the opening brace to the arguments, or past the object if they came before the name.
  JsonCallHead read() {
    if (at_ >= text_.size()) return result(MarkerMatch::kMaybe);
    if (text_[at_] != '{') return result(MarkerMatch::kNo);
    ++at_;
    MarkerMatch member = MarkerMatch::kYes;
    while (member == MarkerMatch::kYes && !is_complete_) member = read_member();
    return result(member);
  }

  // From behind a member to past the object's end.
  JsonCallHead read_rest() {
    MarkerMatch member = MarkerMatch::kYes;
    while (member == MarkerMatch::kYes && !is_complete_) {
      const std::size_t next = skip_hermes_space(text_, at_);
      if (next < text_.size() && text_[next] != ',' && text_[next] != '}') {
        return result(MarkerMatch::kNo);
      }
      has_arguments_begun_ = true;
      member = read_member();
    }
    return result(member);
  }

  bool may_be_call() const { return may_be_call_; }

 private:
  JsonCallHead result(MarkerMatch match) {
    head_.match = match;
    head_.size = at_;
    return std::move(head_);
  }

  MarkerMatch read_member() {
    at_ = skip_hermes_space(text_, at_);
    if (at_ < text_.size() && text_[at_] == ',') at_ = skip_hermes_space(text_, at_ + 1);
    if (at_ >= text_.size()) return MarkerMatch::kMaybe;
    if (text_[at_] == '}') return end_object();
    std::string key;
    const MarkerMatch has_key = read_key(&key);
    if (has_key != MarkerMatch::kYes) return has_key;
    if (is_arguments_key(key) && !head_.name.empty() && at_ < text_.size() && text_[at_] == '{') {
      is_complete_ = true;
      return MarkerMatch::kYes;
    }
    return read_value(key);
  }

  MarkerMatch end_object() {
    ++at_;
    is_complete_ = true;
    if (has_arguments_begun_) return MarkerMatch::kYes;
    if (head_.name.empty()) return MarkerMatch::kNo;
    if (!head_.arguments) head_.arguments = "{}";
    return MarkerMatch::kYes;
  }

  MarkerMatch read_key(std::string* key) {
    if (text_[at_] != '"' && text_[at_] != '\'') return MarkerMatch::kNo;
    const JsonPrefix prefix = scan_json(text_.substr(at_));
    if (prefix.step == kJsonMore) return MarkerMatch::kMaybe;
    const auto name = json_string_text(prefix.json);
    if (prefix.step == kJsonBad || !name) return MarkerMatch::kNo;
    *key = *name;
    may_be_call_ = may_be_call_ &&
                   (*key == "name" || is_arguments_key(*key) || *key == "id" || *key == "type");
    at_ = skip_hermes_space(text_, at_ + prefix.size);
    if (at_ >= text_.size()) return MarkerMatch::kMaybe;
    if (text_[at_] != ':') return MarkerMatch::kNo;
    at_ = skip_hermes_space(text_, at_ + 1);
    return at_ >= text_.size() ? MarkerMatch::kMaybe : MarkerMatch::kYes;
  }

  MarkerMatch read_value(std::string_view key) {
    const JsonPrefix prefix = scan_json(text_.substr(at_));
    if (prefix.step == kJsonMore) return MarkerMatch::kMaybe;
    if (prefix.step == kJsonBad) return MarkerMatch::kNo;
    at_ += prefix.size;
    if (key == "name" && head_.name.empty()) {
      const auto name = json_string_text(prefix.json);
      if (!name || name->empty()) return MarkerMatch::kNo;
      head_.name = *name;
    }
    if (is_arguments_key(key) && !has_arguments_begun_) {
      std::string arguments = hermes_arguments(prefix.json);
      if (arguments.empty()) return MarkerMatch::kNo;
      head_.arguments = std::move(arguments);
    }
    return MarkerMatch::kYes;
  }

  std::string_view text_;
  std::size_t at_;
  JsonCallHead head_;
  bool is_complete_ = false;
  bool has_arguments_begun_ = false;
  bool may_be_call_ = true;
};

class HermesParser final : public JsonCallParser {
 public:
  explicit HermesParser(OutputParserOptions options) : JsonCallParser(std::move(options)) {
    begin_ = marker("<tool_call>");
    openers_ = {begin_, OutputMarker{.text = "{"}};
    ends_ = {marker("</tool_call>")};
    junk_ = {ends_.front(), OutputMarker{.text = "}"}};
  }

 protected:
  JsonCallHead match_head(std::size_t at) override {
    if (text_.rest()[at] == '{') return match_bare(at);
    holds_answer_ = false;
    const std::size_t object = text_.skip_space(at + begin_.text.size());
    HermesHeadReader reader(text_.rest(), object);
    JsonCallHead head = reader.read();
    if (!head.name.empty() && !is_callable(head.name)) head.match = MarkerMatch::kNo;
    head.size -= std::min(head.size, at);
    return head;
  }

  MarkerMatch match_tail(std::size_t* size) override {
    HermesHeadReader reader(text_.rest(), 0);
    const JsonCallHead rest = reader.read_rest();
    *size = rest.size;
    return rest.match;
  }

 private:
  // A call whose markers the model forgot: all of the answer is the object.
  JsonCallHead match_bare(std::size_t at) {
    holds_answer_ = true;
    if (!is_at_start(at) || options_.tools.empty()) return {};
    HermesHeadReader reader(text_.rest(), at);
    JsonCallHead head = reader.read();
    const bool is_known = head.name.empty() || is_callable(head.name);
    if (head.match == MarkerMatch::kNo || !is_known || !reader.may_be_call()) return {};
    const JsonPrefix whole = scan_json(text_.rest().substr(at));
    if (whole.step == kJsonBad) return {};
    const bool is_whole = whole.step != kJsonMore;
    if (is_whole && text_.skip_space(at + whole.size) < text_.rest().size()) return {};
    if (!text_.is_ended()) return {.match = MarkerMatch::kMaybe};
    if (!is_whole || head.match != MarkerMatch::kYes) return {};
    if (!head.arguments) {
      head.arguments = scan_json(text_.rest().substr(head.size)).json;
    }
    head.size = text_.rest().size() - at;
    return head;
  }

  OutputMarker begin_;
};

}  // namespace

std::unique_ptr<OutputParser> make_hermes_parser(OutputParserOptions options) {
  return std::make_unique<HermesParser>(std::move(options));
}

}  // namespace moepack
