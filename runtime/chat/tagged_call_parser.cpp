#include "runtime/chat/tagged_call_parser.h"

#include <algorithm>

#include "runtime/chat/lenient_json.h"

namespace moepack {
namespace {

constexpr std::size_t kLongestTag = 256;

std::string unquoted_tag_name(std::string_view name) {
  constexpr std::string_view kAround = " \t\r\"'";
  const std::size_t begin = name.find_first_not_of(kAround);
  if (begin == std::string_view::npos) return {};
  return std::string(name.substr(begin, name.find_last_not_of(kAround) + 1 - begin));
}

}  // namespace

OutputParserCore::CallStep TaggedCallParser::begin_call(std::size_t at) {
  const NamedTag call = match_call(at);
  const auto waits = [this] { return text_.is_ended() ? CallStep::kNoCall : CallStep::kWait; };
  if (call.match == MarkerMatch::kMaybe) return waits();
  if (call.match == MarkerMatch::kNo || !is_callable(call.name)) return CallStep::kNoCall;
  const std::size_t next = text_.skip_space(at + call.size);
  const MarkerMatch follows = std::max({match_parameter(next).match, text_.match(next, call_end_),
                                        text_.match_any(next, section_ends_)});
  if (follows == MarkerMatch::kMaybe) return waits();
  if (follows == MarkerMatch::kNo) return CallStep::kNoCall;
  start_call(at, call.size, {}, call.name);
  types_ = &types_of(call.name);
  used_.clear();
  is_in_value_ = false;
  return CallStep::kGoesOn;
}

const ArgumentTypes& TaggedCallParser::types_of(const std::string& name) {
  const ToolSpec* tool = find_tool(name);
  if (tool == nullptr) return unknown_types_;
  const auto [at, is_new] = types_by_tool_.try_emplace(name);
  if (is_new) at->second = ArgumentTypes(tool->parameters);
  return at->second;
}

OutputParserCore::CallStep TaggedCallParser::continue_call() {
  while (true) {
    const CallStep step = is_in_value_ ? continue_value() : continue_between();
    if (step != CallStep::kGoesOn) return step;
  }
}

OutputParserCore::CallStep TaggedCallParser::end_of_arguments(std::size_t bytes) {
  take_of_call(bytes);
  sink_.arguments(used_.empty() ? "{}" : "}");
  sink_.end_call();
  return CallStep::kEnded;
}

OutputParserCore::CallStep TaggedCallParser::continue_between() {
  take_of_call(text_.skip_space(0));
  // A model that ends its turn here has given all arguments.
  if (text_.rest().empty()) {
    return text_.is_ended() && !is_cut() ? end_of_arguments(0) : CallStep::kWait;
  }
  const NamedTag tag = match_parameter(0);
  if (tag.match == MarkerMatch::kYes) {
    take_of_call(tag.size);
    begin_value(tag);
    return CallStep::kGoesOn;
  }
  const MarkerMatch end = text_.match(0, call_end_);
  if (end == MarkerMatch::kYes) return end_of_arguments(call_end_.text.size());
  std::size_t which = 0;
  const MarkerMatch section = text_.match_any(0, section_ends_, &which);
  if (section == MarkerMatch::kYes) return end_of_arguments(section_ends_[which].text.size());
  const MarkerMatch repeated = text_.match(0, value_end_);
  if (repeated == MarkerMatch::kYes) {
    take_of_call(value_end_.text.size());
    return CallStep::kGoesOn;
  }
  const MarkerMatch any = std::max({tag.match, end, section, repeated});
  if (any == MarkerMatch::kMaybe && !text_.is_ended()) return CallStep::kWait;
  return CallStep::kBroken;
}

void TaggedCallParser::begin_value(const NamedTag& tag) {
  std::string head = used_.empty() ? "{" : ",";
  head += json_quoted(tag.name);
  sink_.arguments(head += ':');
  used_.insert(tag.name);
  type_ = types_->of(tag.name);
  is_string_ = tag.is_string;
  value_.clear();
  is_in_value_ = true;
  is_value_begun_ = false;
  is_string_begun_ = false;
  last_of_value_ = '\n';
}

// Strings go on as they come; all else waits, and so does what may yet be a null.
void TaggedCallParser::write_value(std::string_view text) {
  if (text.empty()) return;
  last_of_value_ = text.back();
  const bool streams = is_string_.value_or(type_.is_only_string());
  value_ += text;
  if (!streams) return;
  const bool may_be_null = type_.is_nullable && !is_string_ && !is_string_begun_ &&
                           (std::string_view("null").starts_with(value_) ||
                            std::string_view("None").starts_with(value_));
  if (may_be_null) return;
  std::string out = is_string_begun_ ? "" : "\"";
  is_string_begun_ = true;
  append_json_escaped(value_, out);
  sink_.arguments(out);
  value_.clear();
}

void TaggedCallParser::end_value() {
  is_in_value_ = false;
  if (is_string_begun_) {
    sink_.arguments("\"");
  } else if (is_string_) {
    sink_.arguments(*is_string_ ? json_quoted(value_) : any_value_json(value_));
  } else {
    sink_.arguments(argument_json(type_, value_));
  }
  value_.clear();
}

OutputParserCore::CallStep TaggedCallParser::continue_value() {
  if (!is_value_begun_) {
    if (text_.rest().empty()) return CallStep::kWait;
    is_value_begun_ = true;
    if (strips_newlines_ && text_.rest().front() == '\n') take_of_call(1);
  }
  const ValueEnd end = find_value_end();
  std::size_t size = end.at;
  const bool drops_newline = strips_newlines_ && size > 0 && text_.rest()[size - 1] == '\n';
  if (drops_newline) --size;
  write_value(text_.rest().substr(0, size));
  take_of_call(size);
  if (end.match != MarkerMatch::kYes) return CallStep::kWait;
  take_of_call(end.size + (drops_newline ? 1 : 0));
  end_value();
  return CallStep::kGoesOn;
}

bool TaggedCallParser::is_at_line_start(std::size_t at) const {
  return (at == 0 ? last_of_value_ : text_.rest()[at - 1]) == '\n';
}

TaggedCallParser::ValueEnd TaggedCallParser::find_value_end() const {
  std::vector<OutputMarker> candidates = {value_end_, call_end_, parameter_open_};
  for (const OutputMarker& end : section_ends_) {
    if (end.is_added()) candidates.push_back(end);
  }
  std::size_t from = 0;
  while (true) {
    const FoundMarker found = text_.find(candidates, from);
    if (found.is_none()) return {.at = text_.rest().size()};
    if (found.match == MarkerMatch::kMaybe) return {found.at, MarkerMatch::kMaybe, 0};
    const ValueEnd end = value_end_at(found.at);
    if (end.match != MarkerMatch::kNo) return end;
    from = found.at + 1;
  }
}

TaggedCallParser::ValueEnd TaggedCallParser::value_end_at(std::size_t at) const {
  if (text_.match(at, value_end_) == MarkerMatch::kYes) {
    const std::size_t behind = skip_repeated_value_end(at);
    const std::size_t size = value_end_.text.size();
    if (value_end_.is_added()) return {at, MarkerMatch::kYes, size};
    return {at, follows_value(behind), size};
  }
  if (text_.match(at, call_end_) == MarkerMatch::kYes) {
    return {at, follows_call_end(at + call_end_.text.size()), 0};
  }
  if (text_.match_any(at, section_ends_) == MarkerMatch::kYes) return {at, MarkerMatch::kYes, 0};
  return {at, is_at_line_start(at) ? parameter_at(at) : MarkerMatch::kNo, 0};
}

std::size_t TaggedCallParser::skip_repeated_value_end(std::size_t at) const {
  while (text_.match(at, value_end_) == MarkerMatch::kYes) {
    at = text_.skip_space(at + value_end_.text.size());
  }
  return at;
}

MarkerMatch TaggedCallParser::follows_value(std::size_t at) const {
  // Of a text that was cut off nobody knows how it would have gone on.
  if (at >= text_.rest().size()) {
    return text_.is_ended() && !is_cut() ? MarkerMatch::kYes : MarkerMatch::kMaybe;
  }
  MarkerMatch end = text_.match(at, call_end_);
  if (end == MarkerMatch::kYes) end = follows_call_end(at + call_end_.text.size());
  return std::max(
      {end, parameter_at(at), text_.match_any(at, section_ends_), text_.match(at, value_end_)});
}

MarkerMatch TaggedCallParser::follows_call_end(std::size_t at) const {
  if (after_call_end_.empty() || call_end_.is_added()) return MarkerMatch::kYes;
  at = text_.skip_space(at);
  if (at >= text_.rest().size()) {
    return text_.is_ended() ? MarkerMatch::kYes : MarkerMatch::kMaybe;
  }
  return text_.match_any(at, after_call_end_);
}

// A parameter that the tool has and that was not given yet, or may be given again.
MarkerMatch TaggedCallParser::parameter_at(std::size_t at) const {
  const NamedTag tag = match_parameter(at);
  if (tag.match != MarkerMatch::kYes) return tag.match;
  const bool fits =
      types_->admits(tag.name) && (!used_.contains(tag.name) || types_->may_repeat(tag.name));
  return fits ? MarkerMatch::kYes : MarkerMatch::kNo;
}

NamedTag match_name_tag(const OutputText& text, std::size_t at, const OutputMarker& open) {
  NamedTag tag{.match = text.match(at, open)};
  if (tag.match != MarkerMatch::kYes) return tag;
  const std::size_t begin = at + open.text.size();
  const std::string_view rest = text.rest().substr(begin, kLongestTag);
  const std::size_t end = rest.find_first_of(">\n");
  if (end == std::string_view::npos) {
    tag.match =
        rest.size() < kLongestTag && !text.is_ended() ? MarkerMatch::kMaybe : MarkerMatch::kNo;
    return tag;
  }
  tag.name = unquoted_tag_name(rest.substr(0, end));
  tag.size = begin + end + 1 - at;
  if (rest[end] == '\n' || tag.name.empty()) tag.match = MarkerMatch::kNo;
  return tag;
}

NamedTag match_attribute_tag(const OutputText& text, std::size_t at, const OutputMarker& open) {
  NamedTag tag = match_name_tag(text, at, open);
  if (tag.match != MarkerMatch::kYes) return tag;
  const std::size_t begin = at + open.text.size();
  std::string_view inside = text.rest().substr(begin, at + tag.size - 1 - begin);
  const bool is_quoted = inside.starts_with('"') || inside.starts_with('\'');
  const std::size_t end = is_quoted ? inside.find(inside.front(), 1) : inside.find(' ');
  tag.name = unquoted_tag_name(inside.substr(0, end));
  inside.remove_prefix(std::min(end, inside.size()));
  if (inside.find("string=\"true\"") != std::string_view::npos) tag.is_string = true;
  if (inside.find("string=\"false\"") != std::string_view::npos) tag.is_string = false;
  if (tag.name.empty()) tag.match = MarkerMatch::kNo;
  return tag;
}

}  // namespace moepack
