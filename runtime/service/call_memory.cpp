#include "runtime/service/call_memory.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <unordered_set>
#include <utility>
#include <variant>

#include "formats/base/checksum.h"
#include "formats/base/utf8.h"
#include "runtime/chat/history.h"
#include "runtime/chat/output_parser.h"

namespace moepack {
namespace {

struct CallPlace {
  std::size_t begin = 0, end = 0;  // bytes of the prompt, markers included
};

// The next place of `marker` from `from` on that the template wrote; npos: none.
std::size_t find_marker(const PromptText& prompt, std::string_view marker, std::size_t from) {
  std::size_t at = prompt.text.find(marker, from);
  while (at != std::string::npos && touches(prompt.from_user, {at, at + marker.size()})) {
    at = prompt.text.find(marker, at + 1);
  }
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

// The scope of what comes behind `message`, which comes behind `scope`. Lengths keep fields apart.
std::string scope_behind(const std::string& scope, const ChatMessage& message) {
  std::string text = scope;
  const auto add = [&text](std::string_view field) {
    text += std::to_string(field.size()) + ":";
    text += field;
  };
  text += std::to_string(static_cast<int>(message.role));
  for (const std::string* field :
       {&message.content, &message.reasoning, &message.tool_call_id, &message.name}) {
    add(*field);
  }
  for (const ToolCall& call : message.calls) {
    for (const std::string* field : {&call.id, &call.name, &call.arguments}) add(*field);
  }
  return checksum_text(checksum(std::as_bytes(std::span(text))));
}

// Of each message what stands before it, and of all of them.
std::vector<std::string> scopes_of(std::span<const ChatMessage> messages) {
  std::vector<std::string> scopes(1);
  for (const ChatMessage& message : messages) {
    scopes.push_back(scope_behind(scopes.back(), message));
  }
  return scopes;
}

struct CallBack {
  const ToolCall* call;
  std::string key;
};

// That came back, in order.
std::vector<CallBack> calls_of(const Conversation& conversation) {
  std::vector<CallBack> calls;
  const std::vector<std::string> scopes = scopes_of(conversation.messages);
  for (std::size_t m = 0; m < conversation.messages.size(); ++m) {
    for (const ToolCall& call : conversation.messages[m].calls) {
      calls.push_back({&call, call_key(scopes[m], call.id)});
    }
  }
  return calls;
}

// Whether a text can stand in a prompt.
bool is_usable(const CallText& call) {
  return !call.ids.empty() || find_invalid_utf8(call.text) == std::string_view::npos;
}

// Whether `text` says exactly `call`.
bool says_call(const std::string& text, const ToolCall& call, const Conversation& conversation,
               ToolFormat format) {
  OutputParserOptions options;
  const std::vector<ToolSpec>& tools = conversation.tools;
  const auto tool = std::find_if(tools.begin(), tools.end(),
                                 [&](const ToolSpec& spec) { return spec.name == call.name; });
  if (tool != tools.end()) options.tools = {*tool};
  if (options.tools.empty() && !tools.empty()) return false;
  options.format = format;
  options.parses_reasoning = false;
  options.parses_calls = true;
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
  const auto said = parse_arguments(arguments);
  const auto wanted = parse_arguments(call.arguments);
  return said.has_value() && wanted.has_value() && *said == *wanted;
}

// Appends [begin, end) of `from` with its origins.
void append_part(PromptText& to, const PromptText& from, std::size_t begin, std::size_t end) {
  const std::size_t base = to.text.size();
  to.text.append(from.text, begin, end - begin);
  for (auto range = first_behind(from.from_user, begin);
       range != from.from_user.end() && range->begin < end; ++range) {
    to.from_user.push_back(
        {base + std::max(range->begin, begin) - begin, base + std::min(range->end, end) - begin});
  }
}

// Appends a call as it was sampled: what is no marker is like a user's text.
void append_call(PromptText& to, const CallText& call) {
  const std::size_t base = to.text.size();
  to.text += call.text;
  std::size_t done = 0;
  const auto add_text = [&](std::size_t end) {
    if (done < end) to.from_user.push_back({base + done, base + end});
  };
  for (const TextRange& marker : call.markers) {
    add_text(marker.begin);
    done = marker.end;
  }
  add_text(call.text.size());
  if (call.ids.empty()) return;
  to.sampled.push_back({.bytes = {base, base + call.text.size()}, .ids = call.ids});
}

// What tokens of `generated` make up its bytes [begin, end).
CallText call_text(const GeneratedText& generated, std::size_t begin, std::size_t end) {
  CallText call{.text = generated.text.substr(begin, end - begin)};
  const auto& tokens = generated.tokens;
  auto token = std::upper_bound(tokens.begin(), tokens.end(), begin,
                                [](std::size_t at, const auto& t) { return at < t.end; });
  std::size_t at = token == tokens.begin() ? 0 : std::prev(token)->end;
  const bool begins_here = at == begin;
  for (; token != tokens.end() && at < end; ++token) {
    call.ids.push_back(token->id);
    if (token->is_added && at >= begin && token->end <= end) {
      call.markers.push_back({at - begin, token->end - begin});
    }
    at = token->end;
  }
  if (!begins_here || at != end) call.ids.clear();
  return call;
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

void GeneratedText::add(std::int32_t id, std::string_view bytes, bool is_added) {
  text += bytes;
  tokens.push_back({.id = id, .end = text.size(), .is_added = is_added});
}

std::size_t CallText::bytes() const {
  return text.size() + ids.size() * sizeof(std::int32_t) + markers.size() * sizeof(TextRange);
}

std::vector<CallText> call_texts(const GeneratedText& generated, ToolFormat format) {
  const CallMarkers markers = call_markers(format);
  std::vector<CallText> texts;
  if (markers.begin.empty()) return texts;
  std::size_t from = 0;
  while (true) {
    const std::size_t begin = generated.text.find(markers.begin, from);
    if (begin == std::string::npos) return texts;
    const std::size_t end = generated.text.find(markers.end, begin);
    if (end == std::string::npos) return texts;
    from = end + markers.end.size();
    texts.push_back(call_text(generated, begin, from));
  }
}

std::string call_key(std::string_view scope, std::string_view id) {
  return std::string(scope) + " " + std::string(id);
}

std::string conversation_scope(std::span<const ChatMessage> messages) {
  return scopes_of(messages).back();
}

void CallMemory::drop(std::list<Entry>::iterator entry) {
  bytes_ -= entry->call.bytes();
  by_key_.erase(entry->key);
  entries_.erase(entry);
}

void CallMemory::remember(const std::string& key, CallText call) {
  const std::lock_guard lock(mutex_);
  if (call.bytes() > most_bytes_) return;
  // The same conversation may be answered again: the last call is the likelier to be asked for.
  if (const auto known = by_key_.find(key); known != by_key_.end()) drop(known->second);
  bytes_ += call.bytes();
  entries_.push_front({.key = key, .call = std::move(call)});
  by_key_[key] = entries_.begin();
  while (entries_.size() > most_calls_ || bytes_ > most_bytes_) drop(std::prev(entries_.end()));
}

std::optional<CallText> CallMemory::recall(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->call;
}

PromptText restore_calls(const PromptText& prompt, const Conversation& conversation,
                         ToolFormat format, CallMemory& memory) {
  const CallMarkers markers = call_markers(format);
  const std::vector<CallBack> calls = calls_of(conversation);
  if (calls.empty() || markers.begin.empty()) return prompt;
  const std::vector<CallPlace> places = call_places(prompt, markers);
  if (places.size() < calls.size()) return prompt;
  const std::size_t examples = places.size() - calls.size();  // they stand before all messages
  PromptText restored;
  std::size_t done = 0;
  std::unordered_set<std::string_view> seen;  // an id is one call's
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!seen.insert(calls[i].call->id).second) continue;
    const CallPlace& place = places[examples + i];
    const std::optional<CallText> call = memory.recall(calls[i].key);
    if (!call.has_value() || !is_usable(*call)) continue;
    if (!says_call(call->text, *calls[i].call, conversation, format)) continue;
    append_part(restored, prompt, done, place.begin);
    append_call(restored, *call);
    done = place.end;
  }
  append_part(restored, prompt, done, prompt.text.size());
  return restored;
}

}  // namespace moepack
