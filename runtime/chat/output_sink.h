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
  void reasoning(std::string_view text);
  void content(std::string_view text);
  void begin_call(std::string id, std::string name);
  void arguments(std::string_view fragment);
  void end_call();

  std::vector<ParsedOutput> take() { return std::exchange(outputs_, {}); }

 private:
  std::vector<ParsedOutput> outputs_;
};

}  // namespace moepack
