// Says which subcommands there are, to users whose first word is none of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>

#include "formats/base/status.h"

namespace moepack::cli {

// An error where `word`, the first of the command line, is meant as a subcommand of `app` and is
// none. The message tells the nearest one, where one is near, and all others.
Status check_command_name(const CLI::App& app, std::string_view word);

}  // namespace moepack::cli
