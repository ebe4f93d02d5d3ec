#include "runtime/chat/output_parser_core.h"

#include <algorithm>
#include <utility>

namespace moepack {
namespace {

std::string trimmed_marker(const std::string& text, std::string_view otherwise) {
  const auto is_space = [](char c) { return is_output_space(c); };
  const auto begin = std::find_if_not(text.begin(), text.end(), is_space);
  const auto end = std::find_if_not(text.rbegin(), text.rend(), is_space).base();
  return begin < end ? std::string(begin, end) : std::string(otherwise);
}

bool looks_like_name(std::string_view name) {
  const auto is_name_char = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || c == '/';
  };
  return !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), is_name_char);
}

}  // namespace

OutputParserCore::OutputParserCore(OutputParserOptions options) : options_(std::move(options)) {
  reasoning_begin_ = marker(trimmed_marker(options_.reasoning_begin, "<think>"));
  reasoning_end_ = marker(trimmed_marker(options_.reasoning_end, "</think>"));
  if (!options_.begins_in_reasoning || !options_.parses_reasoning) return;
  place_ = Place::kReasoning;
  skips_newlines_ = true;
}

OutputMarker OutputParserCore::marker(std::string text, std::string_view core) const {
  return make_output_marker(std::move(text), options_.added_tokens, core);
}

const ToolSpec* OutputParserCore::find_tool(std::string_view name) const {
  for (const ToolSpec& tool : options_.tools) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

bool OutputParserCore::is_callable(std::string_view name) const {
  return options_.tools.empty() ? looks_like_name(name) : find_tool(name) != nullptr;
}

OutputParserCore::CallStep OutputParserCore::begin_call(std::size_t) { return CallStep::kNoCall; }
OutputParserCore::CallStep OutputParserCore::continue_call() { return CallStep::kBroken; }
MarkerMatch OutputParserCore::match_tail(std::size_t*) { return MarkerMatch::kNo; }

bool OutputParserCore::is_at_start(std::size_t at) const {
  return place_ == Place::kContent && at_start_ && before_space(at) == 0;
}

void OutputParserCore::start_call(std::size_t at, std::size_t size, std::string id,
                                  std::string name) {
  write_text(before_space(at));
  text_.take(text_.skip_space(0));
  call_text_.clear();
  take_of_call(size);
  sink_.begin_call(std::move(id), std::move(name));
}

void OutputParserCore::take_of_call(std::size_t bytes) {
  call_text_ += text_.rest().substr(0, bytes);
  text_.take(bytes);
}

bool OutputParserCore::is_in_frame(const OutputPiece& next) const {
  const auto is_next = [&next](const OutputMarker& opener) { return is_token_of(opener, next); };
  const bool opens_call =
      options_.parses_calls && std::any_of(openers_.begin(), openers_.end(), is_next);
  if (is_in_call() || opens_call) return true;
  if (place_ == Place::kAfterCall) return is_output_space(next.bytes.front()) || is_in_junk(next);
  const auto is_line_end = [](char c) { return c == '\n' || c == '\r'; };
  const std::string_view rest = text_.rest();
  return skips_newlines_ && at_start_ && is_line_end(next.bytes.front()) &&
         std::all_of(rest.begin(), rest.end(), is_line_end);
}

// Behind a call: whether an end that may be repeated there goes on, or may begin, with `next`.
bool OutputParserCore::is_in_junk(const OutputPiece& next) const {
  const std::string text = std::string(text_.rest()).append(next.bytes);
  const auto is_here = [&](const OutputMarker& junk) {
    if (junk.is_added()) return is_token_of(junk, next);
    return text.starts_with(junk.text) || junk.text.starts_with(text);
  };
  return std::any_of(junk_.begin(), junk_.end(), is_here);
}

std::vector<ParsedOutput> OutputParserCore::push(const OutputPiece& piece) {
  collect_markers();
  text_.append(piece.bytes, piece.is_added);
  while (step()) {
  }
  return sink_.take();
}

std::vector<ParsedOutput> OutputParserCore::finish(bool is_cut) {
  collect_markers();
  is_cut_ = is_cut;
  // A call that was cut off before its name was known is left out as one cut off later.
  if (is_cut && awaits_call_) text_.take(text_.rest().size());
  text_.end(is_cut);
  while (step()) {
  }
  if (place_ == Place::kCall && !is_cut) {
    abandon_call();
    while (step()) {
    }
  }
  return sink_.take();
}

// Subclasses know their openers only when they are made.
void OutputParserCore::collect_markers() {
  if (is_collected_) return;
  is_collected_ = true;
  if (options_.parses_reasoning) markers_ = {reasoning_begin_, reasoning_end_};
  first_opener_ = markers_.size();
  if (options_.parses_calls) {
    markers_.insert(markers_.end(), openers_.begin(), openers_.end());
  }
  if (options_.parses_reasoning) junk_.push_back(reasoning_end_);
}

bool OutputParserCore::step() {
  switch (place_) {
    case Place::kReasoning:
    case Place::kContent:
      return step_text();
    case Place::kCall:
      return step_call();
    case Place::kTail:
      return step_tail();
    case Place::kAfterCall:
      return step_after_call();
  }
  return false;
}

std::size_t OutputParserCore::before_space(std::size_t at) const {
  const std::string_view rest = text_.rest();
  while (at > 0 && is_output_space(rest[at - 1])) --at;
  return at;
}

void OutputParserCore::write_text(std::size_t bytes) {
  if (skips_newlines_ && at_start_) {
    const std::string_view rest = text_.rest();
    std::size_t newlines = 0;
    while (newlines < bytes && (rest[newlines] == '\n' || rest[newlines] == '\r')) ++newlines;
    text_.take(newlines);
    bytes -= newlines;
  }
  if (bytes == 0) return;
  if (before_space(bytes) > 0) at_start_ = false;
  const std::string_view text = text_.rest().substr(0, bytes);
  if (place_ == Place::kReasoning) {
    sink_.reasoning(text);
  } else {
    sink_.content(text);
  }
  text_.take(bytes);
}

// Writes what stands before `at` but for white space at its end, which goes if a marker follows.
void OutputParserCore::write_before(std::size_t at) {
  const bool is_all = text_.is_ended() && at == text_.rest().size();
  write_text(is_all || markers_.empty() ? at : before_space(at));
}

// Thoughts begin and end at added tokens anywhere. Where these markers are plain text they count
// only where they can be expected: the end within thoughts, both where a text starts.
bool OutputParserCore::counts_as_switch(const FoundMarker& found) const {
  const bool is_end = found.index == 1;
  if (is_end && place_ == Place::kReasoning) return true;
  if (markers_[found.index].is_added()) return true;
  return at_start_ && before_space(found.at) == 0;
}

bool OutputParserCore::take_switch(const FoundMarker& found) {
  const std::size_t size = markers_[found.index].text.size();
  const std::size_t kept = before_space(found.at);
  write_text(kept);
  text_.take(text_.skip_space(0) + size);
  place_ = found.index == 0 ? Place::kReasoning : Place::kContent;
  at_start_ = true;
  skips_newlines_ = true;
  return true;
}

bool OutputParserCore::step_text() {
  awaits_call_ = false;
  std::size_t from = 0;
  while (true) {
    const FoundMarker found = text_.find(markers_, from);
    const std::size_t at = found.is_none() ? text_.rest().size() : found.at;
    if (found.is_none() || found.match == MarkerMatch::kMaybe) {
      write_before(at);
      return false;
    }
    from = at + 1;
    if (found.index < first_opener_) {
      if (counts_as_switch(found)) return take_switch(found);
      continue;
    }
    const CallStep step = begin_call(at);
    if (step == CallStep::kNoCall) continue;
    if (step != CallStep::kWait) {
      end_of_call(step);
      return true;
    }
    write_before(at);
    awaits_call_ = !holds_answer_;
    return false;
  }
}

void OutputParserCore::end_of_call(CallStep step) {
  place_ = step == CallStep::kEnded ? Place::kTail : Place::kCall;
  at_start_ = true;
  skips_newlines_ = true;
}

bool OutputParserCore::step_call() {
  const CallStep step = continue_call();
  if (step == CallStep::kWait) return false;
  if (step == CallStep::kBroken) {
    abandon_call();
  } else if (step == CallStep::kEnded) {
    call_text_.clear();
    place_ = Place::kTail;
  }
  return true;
}

void OutputParserCore::abandon_call() {
  sink_.content(std::exchange(call_text_, {}));
  place_ = Place::kContent;
  at_start_ = false;
  skips_newlines_ = false;
}

bool OutputParserCore::step_tail() {
  std::size_t size = 0;
  const MarkerMatch match = match_tail(&size);
  if (match == MarkerMatch::kMaybe && !text_.is_ended()) return false;
  if (match == MarkerMatch::kYes) text_.take(size);
  place_ = Place::kAfterCall;
  call_text_.clear();
  return true;
}

bool OutputParserCore::step_after_call() {
  text_.take(text_.skip_space(0));
  if (text_.rest().empty()) return false;
  std::size_t index = 0;
  switch (text_.match_any(0, junk_, &index)) {
    case MarkerMatch::kMaybe:
      return false;
    case MarkerMatch::kYes:
      text_.take(junk_[index].text.size());
      return true;
    case MarkerMatch::kNo:
      break;
  }
  place_ = Place::kContent;
  at_start_ = true;
  skips_newlines_ = true;
  return true;
}

}  // namespace moepack
