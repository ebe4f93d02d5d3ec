// The names of the subcommands, for a first word that is none.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>

#include "formats/base/status.h"

namespace moepack::cli {

// An error where `word`, the first of the command line, is meant as a subcommand of `app` and is
// none; it tells the nearest one, where one is near, and all others.
Status check_command_name(const CLI::App& app, std::string_view word);

}  // namespace moepack::cli
