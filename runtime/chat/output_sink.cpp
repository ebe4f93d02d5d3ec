#include "runtime/chat/output_sink.h"

namespace moepack {
namespace {

// The last output, if it is of this kind, else a new one.
template <typename Kind>
Kind& last_output(std::vector<ParsedOutput>& outputs) {
  if (outputs.empty() || !std::holds_alternative<Kind>(outputs.back())) {
    outputs.emplace_back(std::in_place_type<Kind>);
  }
  return std::get<Kind>(outputs.back());
}

}  // namespace

void OutputSink::reasoning(std::string_view text) {
  if (!text.empty()) last_output<ParsedReasoning>(outputs_).text += text;
}

void OutputSink::content(std::string_view text) {
  if (!text.empty()) last_output<ParsedContent>(outputs_).text += text;
}

void OutputSink::begin_call(std::string id, std::string name) {
  outputs_.emplace_back(std::in_place_type<ParsedCallBegin>);
  auto& begin = std::get<ParsedCallBegin>(outputs_.back());
  begin.id = std::move(id);
  begin.name = std::move(name);
}

void OutputSink::arguments(std::string_view fragment) {
  if (!fragment.empty()) last_output<ParsedCallArguments>(outputs_).fragment += fragment;
}

void OutputSink::end_call() { outputs_.emplace_back(std::in_place_type<ParsedCallEnd>); }

}  // namespace moepack
