// Lists of layers on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/status.h"

namespace moepack::cli {

// Parses "all", which gives an empty list, or numbers and ranges as in "0-4,7". The result is
// sorted and has each layer once. kInvalidArgument for anything else, and for layers beyond 65,535.
Result<std::vector<std::uint32_t>> parse_layers(const std::string& text);

// Adds --layers, whose value parse_layers takes. `verb` says what the command does with layers:
// "Convert".
void add_layers(CLI::App& command, std::string& layers, const std::string& verb);

}  // namespace moepack::cli
