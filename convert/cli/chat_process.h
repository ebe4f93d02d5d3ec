// A command that is run for a tool.
#pragma once

#include <string>
#include <vector>

namespace moepack::cli {

struct ProcessResult {
  std::string output;          // stdout, at most kMostProcessOutput bytes
  std::string failure;         // why there is no good result; empty: it ended with 0
  bool leaves_writer = false;  // something that it started goes on and has its stdout
};

constexpr std::size_t kMostProcessOutput = std::size_t{256} << 10;

// `words`: the program, found by PATH, and its arguments. It gets `input` on stdin and a group of
// its own, which is killed after `seconds` or by Ctrl-C. What the command leaves running goes on;
// its output is read for half a second more. No shell.
ProcessResult run_process(const std::vector<std::string>& words, const std::string& input,
                          double seconds);

}  // namespace moepack::cli
