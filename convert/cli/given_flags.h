// Which flags stand on the command line, for commands some of whose flags say nothing in some
// cases: these are refused there, so that nobody believes that they were followed.
#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <string>

#include "formats/base/status.h"

namespace moepack::cli {

// Whether the option stands on the command line. What the environment sets is no mistake of it.
bool is_given(const CLI::Option& option);

class GivenFlags {
 public:
  GivenFlags() = default;  // nothing was given
  // `command` is looked at when something is asked, and must live until then.
  explicit GivenFlags(const CLI::App& command) : command_(&command) {}

  // A flag of the command, as in "--bits".
  bool has(const std::string& name) const;
  // kInvalidArgument for the first of `names` that was given: it does nothing `here`, as in "beside
  // --tokenizer-only".
  Status check_idle(std::initializer_list<const char*> names, const std::string& here) const;

 private:
  const CLI::App* command_ = nullptr;
};

}  // namespace moepack::cli
