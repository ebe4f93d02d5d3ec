#include "runtime/service/call_memory.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>

#include "runtime/chat/output_parser.h"

namespace moepack {
namespace {

struct CallPlace {
  std::size_t begin = 0, end = 0;  // bytes of the prompt, markers included
};

bool is_from_user(const PromptText& prompt, std::size_t at) {
  const auto range =
      std::upper_bound(prompt.from_user.begin(), prompt.from_user.end(), at,
                       [](std::size_t byte, const TextRange& r) { return byte < r.begin; });
  return range != prompt.from_user.begin() && at < std::prev(range)->end;
}

// The next place of `marker` from `from` on that the template wrote; npos: none.
std::size_t find_marker(const PromptText& prompt, std::string_view marker, std::size_t from) {
  std::size_t at = prompt.text.find(marker, from);
  while (at != std::string::npos && is_from_user(prompt, at)) at = prompt.text.find(marker, at + 1);
  return at;
}

// Of all calls in a prompt, examples in the description of tools included.
std::vector<CallPlace> call_places(const PromptText& prompt, const CallMarkers& markers) {
  std::vector<CallPlace> places;
  std::size_t from = 0;
  while (true) {
    const std::size_t begin = find_marker(prompt, markers.begin, from);
    if (begin == std::string::npos) return places;
    const std::size_t end = find_marker(prompt, markers.end, begin + markers.begin.size());
    if (end == std::string::npos) return places;
    places.push_back({.begin = begin, .end = end + markers.end.size()});
    from = places.back().end;
  }
}

std::vector<const ToolCall*> calls_of(const Conversation& conversation) {
  std::vector<const ToolCall*> calls;
  for (const ChatMessage& message : conversation.messages) {
    for (const ToolCall& call : message.calls) calls.push_back(&call);
  }
  return calls;
}

// Whether `text` says exactly `call`.
bool says_call(const std::string& text, const ToolCall& call, const Conversation& conversation,
               ToolFormat format) {
  OutputParserOptions options;
  options.format = format;
  options.parses_reasoning = false;
  options.parses_calls = true;
  options.tools = conversation.tools;
  const std::unique_ptr<OutputParser> parser = make_output_parser(std::move(options));
  std::vector<ParsedOutput> outputs = parser->push({.bytes = text});
  for (ParsedOutput& output : parser->finish(false)) outputs.push_back(std::move(output));
  std::string name, arguments;
  std::size_t begun = 0;
  for (const ParsedOutput& output : outputs) {
    if (const auto* begin = std::get_if<ParsedCallBegin>(&output)) {
      name = begin->name;
      ++begun;
    } else if (const auto* part = std::get_if<ParsedCallArguments>(&output)) {
      arguments += part->fragment;
    }
  }
  if (begun != 1 || name != call.name) return false;
  const OrderedJson said = OrderedJson::parse(arguments, nullptr, false);
  const OrderedJson wanted =
      OrderedJson::parse(call.arguments.empty() ? "{}" : call.arguments, nullptr, false);
  return !said.is_discarded() && said == wanted;
}

// Appends [begin, end) of `from` with its origins.
void append_part(PromptText& to, const PromptText& from, std::size_t begin, std::size_t end) {
  const std::size_t base = to.text.size();
  to.text.append(from.text, begin, end - begin);
  for (const TextRange& range : from.from_user) {
    const std::size_t first = std::max(range.begin, begin);
    const std::size_t last = std::min(range.end, end);
    if (first < last) to.from_user.push_back({base + first - begin, base + last - begin});
  }
}

}  // namespace

CallMarkers call_markers(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHermes:
    case ToolFormat::kQwenXml:
    case ToolFormat::kGlm:
      return {"<tool_call>", "</tool_call>"};
    case ToolFormat::kDeepseek:
      return {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"};
    case ToolFormat::kDsml:
      return {"<｜DSML｜invoke", "</｜DSML｜invoke>"};
    case ToolFormat::kKimi:
      return {"<|tool_call_begin|>", "<|tool_call_end|>"};
    case ToolFormat::kMinimax:
      return {"<invoke", "</invoke>"};
    default:
      return {};
  }
}

std::vector<std::string> call_texts(std::string_view generated, ToolFormat format) {
  const CallMarkers markers = call_markers(format);
  std::vector<std::string> texts;
  if (markers.begin.empty()) return texts;
  std::size_t from = 0;
  while (true) {
    const std::size_t begin = generated.find(markers.begin, from);
    if (begin == std::string_view::npos) return texts;
    const std::size_t end = generated.find(markers.end, begin);
    if (end == std::string_view::npos) return texts;
    from = end + markers.end.size();
    texts.emplace_back(generated.substr(begin, from - begin));
  }
}

void CallMemory::drop_oldest() {
  bytes_ -= entries_.back().text.size();
  by_id_.erase(entries_.back().id);
  entries_.pop_back();
}

void CallMemory::remember(const std::string& id, std::string text) {
  const std::lock_guard lock(mutex_);
  if (text.size() > most_bytes_ || by_id_.contains(id)) return;
  bytes_ += text.size();
  entries_.push_front({.id = id, .text = std::move(text)});
  by_id_[id] = entries_.begin();
  while (entries_.size() > most_calls_ || bytes_ > most_bytes_) drop_oldest();
}

std::optional<std::string> CallMemory::recall(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->text;
}

PromptText restore_calls(const PromptText& prompt, const Conversation& conversation,
                         ToolFormat format, CallMemory& memory) {
  const CallMarkers markers = call_markers(format);
  const std::vector<const ToolCall*> calls = calls_of(conversation);
  if (calls.empty() || markers.begin.empty()) return prompt;
  const std::vector<CallPlace> places = call_places(prompt, markers);
  if (places.size() < calls.size()) return prompt;
  const std::size_t examples = places.size() - calls.size();  // they stand before all messages
  PromptText restored;
  std::size_t done = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const CallPlace& place = places[examples + i];
    const std::optional<std::string> text = memory.recall(calls[i]->id);
    if (!text.has_value() || !says_call(*text, *calls[i], conversation, format)) continue;
    append_part(restored, prompt, done, place.begin);
    restored.text += *text;
    done = place.end;
  }
  append_part(restored, prompt, done, prompt.text.size());
  return restored;
}

}  // namespace moepack
