// Collects what a parser tells; texts of one kind that follow each other become one.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/chat/output_parser.h"

namespace moepack {

class OutputSink {
 public:
  void reasoning(std::string_view text) {
    if (text.empty()) return;
    if (!outputs_.empty()) {
      if (auto* last = std::get_if<ParsedReasoning>(&outputs_.back())) {
        last->text += text;
        return;
      }
    }
    outputs_.emplace_back(ParsedReasoning{std::string(text)});
  }
  void content(std::string_view text) {
    if (text.empty()) return;
    if (!outputs_.empty()) {
      if (auto* last = std::get_if<ParsedContent>(&outputs_.back())) {
        last->text += text;
        return;
      }
    }
    outputs_.emplace_back(ParsedContent{std::string(text)});
  }
  void begin_call(std::string id, std::string name) {
    outputs_.emplace_back(ParsedCallBegin{std::move(id), std::move(name)});
  }
  void arguments(std::string_view fragment) {
    if (fragment.empty()) return;
    if (!outputs_.empty()) {
      if (auto* last = std::get_if<ParsedCallArguments>(&outputs_.back())) {
        last->fragment += fragment;
        return;
      }
    }
    outputs_.emplace_back(ParsedCallArguments{std::string(fragment)});
  }
  void end_call() { outputs_.emplace_back(ParsedCallEnd{}); }

  std::vector<ParsedOutput> take() { return std::exchange(outputs_, {}); }

 private:
  std::vector<ParsedOutput> outputs_;
};

}  // namespace moepack
